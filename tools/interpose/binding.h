// What both interposers have of their trampolines: the first entry that is called has all of them
// bound to the library behind.
#pragma once

#include "served.h"

// In trampolines.S: where the entries jump to.
extern "C" {
extern emm::run::Entry emm_run_targets[];
}

namespace emm::run {

// Each interposer's own: finds the library and fills emm_run_targets in.
void bind_all();

// Calls it the first time, and keeps errno. Any thread may call.
void bind_once();

bool is_bound();

} // namespace emm::run
