#pragma once

#include "json.h"

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
    double pace = 0; // of the recording's times between calls; 0: without a pause
    bool json = false;
    double limit = 120;               // seconds that a process may be silent
    std::vector<std::string> plugins; // empty: what the environment names
};

class Parent;

// `emm replay`: returns the exit status.
int run_replay(const ReplayOptions &options);

// Its part in each plugin's own process: one trace through the plugin that the environment names.
void run_replay_job(const Json &job, Parent &parent);

// The table of `emm replay` for people, from the object that --json prints.
std::string replay_text(const Json &report);

// Nothing failed, leaked or was handed over too early, and every plugin ran.
bool replay_is_good(const Json &report);

} // namespace emm::tool
