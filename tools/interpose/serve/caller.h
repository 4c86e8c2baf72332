// Finds the library that has called a served entry.
#pragma once

#include "caches.h"

#include <string_view>

namespace emm::run {

// The role of a library between a served entry and the program's call.
enum class Library {
    passing, // the CUDA runtime and emm's own: the caller is behind them
    torch,   // the library of PyTorch's cache
    cupy,    // CuPy
    other,
};

// By its path, as the dynamic linker knows the library. The program itself has the path "".
Library library_at(std::string_view path);

// The cache of the library that makes the calling thread's call; no_caches: that library has no
// cache, or the stack does not tell.
Caches cache_of_caller();

// Whether the calling thread is inside the plugin or a layer over it, also where a library that
// these use makes the call. The first call finds the plugin's path; make it while no call is held.
bool is_plugins_call();

} // namespace emm::run
