#pragma once

#include "commands.h"

namespace emm::tool::top {

// The form of the output.
enum class Mode { json, prometheus, dump, tables, screen };
struct Plan {
    Mode mode = Mode::tables;
    double interval = 1; // seconds
    uint64_t count = 1;  // tables or objects; 0: without end
};
Plan plan_for(const TopOptions &options, bool is_terminal);

} // namespace emm::tool::top
