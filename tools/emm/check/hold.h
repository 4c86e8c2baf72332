#pragma once

#include <atomic>
#include <emm/plugin.h>

namespace emm::tool::check {

// What happens in each driver call of a plugin that gives device memory back, before the driver's
// part; NULL: nothing.
extern std::atomic<void (*)()> before_giving_back;

// What a plugin gets for the driver's `entry` of that name: the same, if it gives nothing back.
emm_function entry_that_can_be_held(const char *name, emm_function entry);

} // namespace emm::tool::check
