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

// `emm top`: returns the exit status.
int run_top(const TopOptions &options);

namespace top {

// How it shows what it finds.
enum class Mode { json, prometheus, dump, tables, screen };
struct Plan {
    Mode mode = Mode::tables;
    double interval = 1; // seconds
    uint64_t count = 1;  // of tables or objects; 0: until it is ended
};
Plan plan_for(const TopOptions &options, bool is_terminal);

} // namespace top

} // namespace emm::tool
