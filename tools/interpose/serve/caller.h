// Which library makes the call that has come to a served entry.
#pragma once

#include "caches.h"

#include <string_view>

namespace emm::run {

// What a library on the way to a served entry is.
enum class Library {
    passing, // the CUDA runtime and emm's own: the caller is behind it
    torch,   // that of PyTorch's cache
    cupy,    // CuPy
    other,
};

// By its path, as the dynamic linker knows it. The program itself has none ("").
Library library_at(std::string_view path);

// The cache of the library that makes the calling thread's call; no_caches: it has none, or the
// stack does not tell.
Caches cache_of_caller();

// Whether the plugin itself, or a layer over it, makes the calling thread's call. Learns where they
// lie at its first call, which is to be made while no call is held.
bool is_plugins_call();

} // namespace emm::run
