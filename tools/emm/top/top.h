#pragma once

#include "commands.h"

namespace emm::tool::top {

// How it shows what it finds.
enum class Mode { json, prometheus, dump, tables, screen };
struct Plan {
    Mode mode = Mode::tables;
    double interval = 1; // seconds
    uint64_t count = 1;  // of tables or objects; 0: until it is ended
};
Plan plan_for(const TopOptions &options, bool is_terminal);

} // namespace emm::tool::top
