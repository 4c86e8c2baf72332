// The trampolines of both interposers. The first entry that is called binds all of them to the
// library behind.
#pragma once

#include "served.h"

// In trampolines.S: where the entries jump to.
extern "C" {
extern emm::run::Entry emm_run_targets[];
}

namespace emm::run {

// Each interposer's own: finds the library and fills emm_run_targets in.
void bind_all();

// Calls bind_all() the first time, and keeps errno. Any thread may call.
void bind_once();

bool is_bound();

} // namespace emm::run
