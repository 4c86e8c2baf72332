#pragma once

#include "observe/callers/modules.h"
#include "observe/callers/unwind_rule.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define EMM_CLANG_SANITIZES
#endif
#endif

// Finds who asked for memory: the first call on the stack outside libraries that only pass calls on
// (is_passing_library).

namespace emm::observe {

// Walks the calling thread's stack, in a few nanoseconds for each frame. The call frame information
// for a place in code is read once, and kept in a table that every thread reads without a lock.
//
// The table has one word for each place, so no reader sees half an entry. If two places share a
// word, the later one replaces the earlier, which is read again when needed.
class UnwindRules {
public:
    UnwindRule at(uintptr_t place) noexcept {
        const uint64_t word = words_[index(place)].load(std::memory_order_relaxed);
        return word >> rule_bits == tag(place) ? unpacked(uint32_t(word & rule_mask)) : read(place);
    }

    // Called when code was unloaded, because other code may lie there by now. Code on a thread's
    // stack stays loaded, so no thread enters an old rule after this.
    void clear() noexcept;

private:
    static constexpr unsigned index_bits = 15, rule_bits = 31;
    static constexpr uint64_t rule_mask = (uint64_t(1) << rule_bits) - 1;
    static size_t index(uintptr_t place) { return place & ((1u << index_bits) - 1); }
    static uint64_t tag(uintptr_t place) { return place >> index_bits; }

    [[gnu::noinline, gnu::cold]] UnwindRule read(uintptr_t place) noexcept;

    std::atomic<uint64_t> words_[1u << index_bits] = {};
};

inline constinit UnwindRules unwind_rules;

// The end of the calling thread's stack, beyond its outermost frame. 0: `stack_pointer` is not in
// the stack that the thread was started with, as in a coroutine or on a signal stack.
uintptr_t end_of_own_stack(uintptr_t stack_pointer) noexcept;

// A thread's position in its calls. Only words between the stack pointer and the stack's end are
// read. A library that switches greenlets has overwritten the frames beyond its first one.
struct Frame {
    uintptr_t place = 0, stack_pointer = 0, frame_pointer = 0, stack_end = 0;
    bool is_return = false; // `place` is behind a call

    // Moves to the caller. False: the stack ends here, or the frame cannot be read.
    bool leave() noexcept;

private:
    bool read(uintptr_t address, uintptr_t &ret_word) const noexcept;
};

#if defined(__aarch64__)
// Removes the bits with which the processor has signed the return address.
inline uintptr_t unsign(uintptr_t address) noexcept {
    // xpaclri: nothing on processors without signatures
    asm("mov x30, %0\n\thint #7\n\tmov %0, x30" : "+r"(address) : : "x30");
    return address;
}
#endif

// A sanitizer may report words between two frames as out of bounds; a return address is not.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(EMM_CLANG_SANITIZES)
#define EMM_UNWATCHED __attribute__((noinline, no_sanitize("address"), no_sanitize("thread")))
#else
#define EMM_UNWATCHED
#endif

EMM_UNWATCHED inline uintptr_t stack_word(uintptr_t address) noexcept {
    return *reinterpret_cast<const volatile uintptr_t *>(address);
}

[[gnu::always_inline]] inline bool Frame::read(uintptr_t address,
                                               uintptr_t &ret_word) const noexcept {
    if (address < stack_pointer || address >= stack_end || stack_end - address < sizeof ret_word) {
        return false;
    }
    ret_word = stack_word(address);
    return true;
}

[[gnu::always_inline]] inline bool Frame::leave() noexcept {
    const UnwindRule rule = unwind_rules.at(place - is_return);
    if (rule.cfa == UnwindRule::Cfa::none) {
        return false;
    }
    const uintptr_t from = rule.cfa == UnwindRule::Cfa::from_sp ? stack_pointer : frame_pointer;
    const uintptr_t sum = from + uintptr_t(intptr_t(rule.cfa_offset));
    uintptr_t cfa = sum;
    if ((rule.cfa == UnwindRule::Cfa::at_fp && !read(sum, cfa)) || cfa <= stack_pointer) {
        return false; // stacks grow downwards
    }
    const uintptr_t saved = cfa + uintptr_t(intptr_t(rule.save_offset));
#if defined(__x86_64__)
    const uintptr_t saved_fp = rule.cfa == UnwindRule::Cfa::at_fp ? frame_pointer : saved;
    const bool is_read = read(cfa - 8, place);
#else
    const uintptr_t saved_fp = saved - 8;
    const bool is_read = read(saved, place);
    place = unsign(place);
#endif
    if (!is_read || (rule.saves_fp && !read(saved_fp, frame_pointer))) {
        return false;
    }
    stack_pointer = cfa;
    is_return = true;
    return place != 0;
}

// The frame of the function that this is inlined into; the function must not return while the frame
// is used.
[[gnu::always_inline]] inline Frame frame_here() noexcept {
    Frame frame;
#if defined(__x86_64__)
    asm volatile("leaq 0(%%rip), %0\n\tmovq %%rsp, %1\n\tmovq %%rbp, %2"
                 : "=&r"(frame.place), "=&r"(frame.stack_pointer), "=&r"(frame.frame_pointer));
#else
    asm volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29"
                 : "=&r"(frame.place), "=&r"(frame.stack_pointer), "=&r"(frame.frame_pointer));
#endif
    frame.stack_end = end_of_own_stack(frame.stack_pointer);
    return frame;
}

// Fills the calling thread's return addresses, the innermost first, from the caller of `frame` on,
// at most `most`. Returns their number.
size_t walk(Frame frame, uintptr_t *ret_addresses, size_t most) noexcept;

constexpr size_t deepest_stack = 64; // further frames are left out

[[gnu::noinline]] const void *outer_caller_slowly(const void *direct) noexcept;

// The return address of the call that asked for memory. `direct` is that of the call into libemm,
// whose frame is on this thread's stack, or NULL. It is the answer unless it lies in a library that
// passes calls on.
inline const void *outer_caller(const void *direct) noexcept {
    if (!direct) {
        return nullptr;
    }
    const CodeRange *const range = modules().find(reinterpret_cast<uintptr_t>(direct));
    return range && range->is_passing ? outer_caller_slowly(direct) : direct;
}

// The same with its file. If the answer is `direct` itself, this takes one look-up.
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
