#pragma once

#include <string>

namespace emm::dl {

// Maps a shared library and runs its constructors; NULL if the dynamic linker refuses, which
// dlerror explains. The library stays mapped until the process ends. `what` names it in the log,
// where "loading" appears before its first code runs.
//
// If a constructor throws, the exception passes through the dynamic linker, which then keeps its
// lock permanently: another thread's dlopen would hang. So the process ends, with a sentence that
// names `what`.
void *load_library(const std::string &path, const std::string &what);

// A function of the libraries that the program has loaded, by name; NULL if none has the name.
void *find_in_process(const char *name) noexcept;

} // namespace emm::dl
