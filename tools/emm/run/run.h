#pragma once

#include "print.h"

#include <optional>
#include <string>
#include <vector>

namespace emm::tool {

struct RunOptions {
    std::optional<std::string> plugin;  // none: what EMM_PLUGIN says
    std::optional<std::string> record;  // the event log
    std::optional<std::string> track;   // EMM_TRACK
    std::optional<std::string> release; // whose caches give back, separated by commas
    bool sync_free = false;
    bool zero = false;
    bool no_children = false;
    bool audit = false;
    bool print_env = false;
    std::vector<std::string> program; // with its arguments
};

// `emm run`: becomes the program, or returns the exit status. Throws Failure if the plugin does not
// load. The program gets the signals as they were.
int run_program(const RunOptions &options, WriteSignalsIgnored &signals);

} // namespace emm::tool
