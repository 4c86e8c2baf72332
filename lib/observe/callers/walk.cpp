#include "observe/callers/walk.h"

#include <pthread.h>

namespace emm::observe {
namespace {

struct StackRange {
    uintptr_t low = 0, high = 0; // high 0: not looked up yet
};
[[gnu::tls_model("initial-exec")]] constinit thread_local StackRange own_stack;

// Empty if the C library cannot tell: for a main thread it reads /proc.
StackRange find_own_stack() noexcept {
    StackRange found = {1, 1};
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        void *low = nullptr;
        size_t bytes = 0;
        if (pthread_attr_getstack(&attributes, &low, &bytes) == 0) {
            found.low = reinterpret_cast<uintptr_t>(low);
            found.high = found.low + bytes;
        }
        pthread_attr_destroy(&attributes);
    }
    return found;
}

[[gnu::constructor]] void have_rules_cleared() {
    on_unload = []() noexcept { unwind_rules.clear(); };
}

} // namespace

UnwindRule UnwindRules::read(uintptr_t place) noexcept {
    const UnwindRule rule = rule_at(place);
    const uint32_t bits = packed(rule);
    // Not stored: a frame too large for the table, a tag that does not fit, or code that was made
    // at run time and may be replaced.
    if (unpacked(bits) == rule && place >> 48 == 0 && modules().find(place)) {
        words_[index(place)].store(tag(place) << rule_bits | bits, std::memory_order_relaxed);
    }
    return rule;
}

void UnwindRules::clear() noexcept {
    for (std::atomic<uint64_t> &word : words_) {
        word.store(0, std::memory_order_relaxed);
    }
}

uintptr_t end_of_own_stack(uintptr_t stack_pointer) noexcept {
    if (own_stack.high == 0) [[unlikely]] {
        own_stack = find_own_stack();
    }
    const bool is_own = stack_pointer >= own_stack.low && stack_pointer < own_stack.high;
    return is_own ? own_stack.high : 0;
}

size_t walk(Frame frame, uintptr_t *ret_addresses, size_t most) noexcept {
    size_t count = 0;
    while (count < most && frame.leave()) {
        ret_addresses[count++] = frame.place;
    }
    return count;
}

const void *outer_caller_slowly(const void *direct) noexcept {
    Frame frame = frame_here();
    bool has_passed_direct = false; // frames before `direct` are emm's own
    for (size_t depth = 0; depth < deepest_stack && frame.leave(); depth++) {
        has_passed_direct |= frame.place == reinterpret_cast<uintptr_t>(direct);
        const CodeRange *const range = has_passed_direct ? modules().find(frame.place) : nullptr;
        if (has_passed_direct && !(range && range->is_passing)) {
            return reinterpret_cast<const void *>(frame.place);
        }
    }
    return direct;
}

} // namespace emm::observe
