// The caches of Python libraries that give memory back on request.
#pragma once

#include "python.h"

#include <cstdint>
#include <string_view>

namespace emm::run {

using Caches = uint32_t; // a set of them
constexpr Caches no_caches = 0, torch_cache = 1, cupy_cache = 2;

// The cache of the module of that name; no_caches: no cache has that name.
Caches cache_named(std::string_view name);

// The kind of memory that has run out.
enum class Memory { device, pinned };

// Asks those of `caches` whose modules the program has imported; imports none. The calling thread
// holds the interpreter's lock, and has no pending Python error.
void release_caches(const Python &python, Caches caches, Memory memory);

} // namespace emm::run
