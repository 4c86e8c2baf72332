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

// Stacks, each once. A reader of one that was asked for lately takes no lock.
class Stacks {
public:
    static constexpr size_t most = 100'000; // what is new then has no stack

    // NULL: there are `most`, or there is no memory. Valid for good.
    const Stack *intern(const FoundStack &found) noexcept;
};

Stacks &stacks() noexcept;

} // namespace emm::observe
