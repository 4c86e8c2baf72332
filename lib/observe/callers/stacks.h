#pragma once

#include <emm/emm.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emm::observe {

// A call stack that is known: made once, shared by all allocations that came by it, and never
// changed.
struct Stack {
    std::vector<emm_frame> frames; // as emm_allocation tells them
};

// What a thread has found: return addresses, the innermost first, then words of Python.
struct FoundStack {
    const uint64_t *words;
    size_t natives, pythons;
};

// The stack that is known by these words. One that was asked for lately takes no lock. NULL: there
// is no memory, or as many are known as are kept. Valid for good.
const Stack *known_stack(const FoundStack &found) noexcept;

} // namespace emm::observe
