#pragma once

#include <cstdint>
#include <string>

namespace emm::tool {

struct TopOptions {
    bool json = false, prometheus = false;
    std::string output;  // a file for Prometheus; empty: standard output
    int64_t dump = 0;    // a process
    double interval = 0; // seconds; 0: not given
    uint64_t count = 0;  // of tables or objects; 0: not given
    std::string sort = "reserved";
};

} // namespace emm::tool
