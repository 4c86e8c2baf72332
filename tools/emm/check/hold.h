#pragma once

#include <atomic>
#include <emm/plugin.h>

namespace emm::tool::check {

// Called before each driver call of the plugin that returns device memory; NULL: not at all.
extern std::atomic<void (*)()> before_giving_back;

// The entry that the plugin gets for the driver's `entry` of that name: the same one, unless it
// returns memory.
emm_function entry_that_can_be_held(const char *name, emm_function entry);

} // namespace emm::tool::check
