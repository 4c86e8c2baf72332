#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emm::tool {

struct ReplayOptions {
    std::string trace;    // a file, - for standard input; empty: `workload`
    std::string workload; // a built-in one
    uint64_t seed = 1;
    bool free_order = false;
    bool touch = false;
    bool warm = false;
    bool json = false;
    double limit = 120;               // seconds that a process may be silent
    std::vector<std::string> plugins; // empty: what the environment names
};

} // namespace emm::tool
