// Finds the served entry that cuGetProcAddress is asked for. Pure functions.
#pragma once

#include "served.h"

namespace emm::run {

// The entry that a caller of cuGetProcAddress means by `name`, `version` and `per_thread` (stream 0
// is the calling thread's own): the newest form that is not newer than `version`. served_count: emm
// serves no such entry.
Served served_by_name(const char *name, int version, bool per_thread);

// The driver's own answer to cuGetProcAddress; NULL: it finds nothing.
using AskDriver = void *(*)(const char *name, int version, bool per_thread);

// The entry whose function the driver has found for a caller of cuGetProcAddress. Mostly the driver
// exports that function. Otherwise it is the function that the driver finds for a served form of
// `name`. served_count: the function is of no served form, perhaps of a newer one.
Served served_by_function(void *found, const char *name, int version, bool per_thread,
                          const Entries &driver, AskDriver ask);

// The symbol of a served entry: "cuMemAlloc_v2".
const char *symbol_of(Served served);

// The entry with that symbol, or served_count.
Served served_by_symbol(const char *symbol);

} // namespace emm::run
