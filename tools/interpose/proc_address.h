// Finds the served entry that cuGetProcAddress is asked for. Pure functions.
#pragma once

#include "served.h"

namespace emm::run {

// The entry that a caller of cuGetProcAddress means by `name`, `version` and `per_thread` (stream 0
// is the calling thread's own): the newest form that is not newer than `version`. served_count: emm
// serves no such entry.
Served served_by_name(const char *name, int version, bool per_thread);

// The symbol of a served entry: "cuMemAlloc_v2".
const char *symbol_of(Served served);

// The entry with that symbol, or served_count.
Served served_by_symbol(const char *symbol);

} // namespace emm::run
