// The entries that emm run serves or watches, and what its two libraries say to each other: the
// interposer, which every program gets, and libemm-run, which it opens in programs that use CUDA.
#pragma once

#include <stddef.h>

namespace emm::run {

enum Served {
#define SERVED(name, since, symbol) served_##symbol,
#define SERVED_STREAM(name, since, symbol, variant) served_##symbol, served_##variant,
#include "served.def"
#undef SERVED
#undef SERVED_STREAM
    served_count,
};

using Entry = void (*)();

// One for each of Served, in that order; NULL: there is none.
struct Entries {
    Entry at[served_count];
};

// What libemm-run exports as `emm_run_serve`: loads the plugin, takes the driver's own entries and
// gives those that take their place; NULL leaves an entry to the driver. False: `ret_problem` has
// one sentence, cut to `size` bytes.
using Serve = bool (*)(const Entries *driver, Entries *ret_serving, char *ret_problem, size_t size);
constexpr const char serve_name[] = "emm_run_serve";

} // namespace emm::run
