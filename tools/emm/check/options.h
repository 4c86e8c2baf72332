#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emm::tool {

struct CheckOptions {
    std::string spec;
    std::vector<std::string> filters; // parts of names of cases, or requirements; none: all
    uint64_t seed = 1;
    double limit = 30; // seconds for one case
    unsigned jobs = 0; // cases at a time; 0: one for each processor
    bool list = false;
    bool json = false;
};

} // namespace emm::tool
