#pragma once

#include "observe/callers/tags.h"

#include <emm/emm.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emm::observe {

// A call stack that is known: made once, shared by all allocations that came by it, and never
// changed.
struct Stack {
    std::vector<emm_frame> frames; // as emm_allocation tells them
    const Tag *tag = nullptr;      // that the thread was inside of
};

// What a thread has found: return addresses, the innermost first, then words of Python.
struct FoundStack {
    const uint64_t *words;
    size_t natives, pythons;
    const Tag *tag = current_tag();
};

// The stack that is known by these words. One that was asked for lately takes no lock. NULL: there
// is no memory, or as many are known as are kept. Valid for good.
const Stack *known_stack(const FoundStack &found) noexcept;

// One of the calling thread's tags alone; NULL as well where it has none.
inline const Stack *stack_of_tags() noexcept {
    return current_tag() ? known_stack({nullptr, 0, 0}) : nullptr;
}

// " [serve/decode]", for behind a caller; "" without a tag.
inline std::string tag_text(const Stack *stack) {
    return stack && stack->tag ? " [" + stack->tag->path + "]" : "";
}

} // namespace emm::observe
