#pragma once

#include <string>

namespace emm::dl {

// Maps a shared library and runs its constructors; NULL if the dynamic linker refuses, which
// dlerror explains. The library stays mapped until the process ends. `what` names it in the log,
// where "loading" comes before the first of its code runs.
//
// An exception that a constructor throws passes through the dynamic linker, which then keeps its
// lock and is in the middle of its work for good: another thread's dlopen would hang. So it ends
// the process, with a sentence that names `what`.
void *load_library(const std::string &path, const std::string &what);

// A function of what the program has loaded, by name; NULL: there is none.
void *find_in_process(const char *name) noexcept;

} // namespace emm::dl
