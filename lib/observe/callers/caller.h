#pragma once

#include "observe/callers/modules.h"
#include "observe/callers/walk.h"

// Who asked for memory: the first call on the stack that is not one of a library which only passes
// calls on (is_passing_library).
namespace emm::observe {

constexpr size_t deepest_stack = 64; // frames; what is further out is not told

[[gnu::noinline]] const void *outer_caller_slowly(const void *direct) noexcept;

// The return address of that call. `direct` is the one of the call into libemm, somewhere on this
// thread's stack, or NULL; it is the answer unless a library that passes calls on is there.
inline const void *outer_caller(const void *direct) noexcept {
    if (!direct) {
        return nullptr;
    }
    const CodeRange *const range = modules().find(reinterpret_cast<uintptr_t>(direct));
    return range && range->is_passing ? outer_caller_slowly(direct) : direct;
}

} // namespace emm::observe
