#pragma once

#include "observe/callers/tags.h"

#include <emm/emm.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emm::observe {

// A known call stack: made once, shared by all allocations with these calls, and never changed.
struct Stack {
    std::vector<emm_frame> frames; // as in emm_allocation
    const Tag *tag = nullptr;      // the innermost tag that the thread was inside of
};

// One thread's captured stack: return addresses, the innermost first, then words of Python.
struct FoundStack {
    const uint64_t *words;
    size_t natives, pythons;
    const Tag *tag = current_tag();
};

// Finds or makes the stack of these words. A recently used stack takes no lock. NULL: there is no
// memory, or the limit of kept stacks is reached. Valid permanently.
const Stack *known_stack(const FoundStack &found) noexcept;

// A stack of only the calling thread's tags; also NULL if the thread has none.
inline const Stack *stack_of_tags() noexcept {
    return current_tag() ? known_stack({nullptr, 0, 0}) : nullptr;
}

// " [serve/decode]", to follow a caller; "" without a tag.
inline std::string tag_text(const Stack *stack) {
    return stack && stack->tag ? " [" + stack->tag->path + "]" : "";
}

} // namespace emm::observe
