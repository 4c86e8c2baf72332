#pragma once

#include "json.h"

#include <string>

namespace emm::tool {

struct InfoOptions {
    std::string spec; // empty: what is in force
    bool json = false;
    double limit = 30; // seconds that a plugin may take to load
};

class Parent;

// `emm info`: returns the exit status.
int run_info(const InfoOptions &options);

// Its part in a process of its own: the plugin is loaded and described.
void run_info_job(const Json &job, Parent &parent);

// One that was found is loaded, for its description alone.
void run_describe_job(const Json &job, Parent &parent);

} // namespace emm::tool
