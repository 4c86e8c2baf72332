#pragma once

#include "json.h"

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

class Parent;

// `emm check`: returns the exit status. Throws Failure if the plugin does not load.
int run_check(const CheckOptions &options);

// Its part in a process of its own: what the plugin is, one case, or the other side of sharing.
void run_check_job(const Json &job, Parent &parent);

} // namespace emm::tool
