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

// The same with the file that it is in, for one look where that is `direct` itself.
struct OuterCaller {
    const void *address = nullptr;
    CodePlace place;
};
inline OuterCaller find_outer_caller(const void *direct) noexcept {
    const auto address = reinterpret_cast<uintptr_t>(direct);
    const CodeRange *const range = direct ? modules().find(address) : nullptr;
    if (!range) [[unlikely]] {
        return {direct, {0, address}};
    }
    if (range->is_passing) [[unlikely]] {
        const void *const outer = outer_caller_slowly(direct);
        return {outer, modules().place_of(reinterpret_cast<uintptr_t>(outer))};
    }
    return {direct, {range->module, address - range->base}};
}

} // namespace emm::observe
