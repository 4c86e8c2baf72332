#pragma once

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

} // namespace emm::tool
