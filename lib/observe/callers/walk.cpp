#include "observe/callers/walk.h"

#include "observe/callers/modules.h"

#include <unwind.h>

namespace emm::observe {
namespace {

#if defined(__aarch64__)
// Takes off the bits that the processor has signed the return address with.
uintptr_t unsign(uintptr_t address) {
    register uintptr_t x30 asm("x30") = address;
    asm("hint #7" : "+r"(x30)); // xpaclri; nothing on processors without signatures
    return x30;
}
#endif

// The stack may hold red zones of sanitizers; a return address is none of them.
[[gnu::no_sanitize("address"), gnu::no_sanitize("thread")]] uintptr_t
stack_word(uintptr_t address) {
    return *reinterpret_cast<const volatile uintptr_t *>(address);
}

// For a stack with a frame of a rare form: all of it again.
struct Backtrace {
    uintptr_t behind; // the stack pointer of the frame that the walk began in
    uintptr_t *addresses;
    size_t most, count;
};

_Unwind_Reason_Code add_frame(_Unwind_Context *context, void *state) {
    Backtrace &trace = *static_cast<Backtrace *>(state);
    // The CFA that libgcc tells is that of the frame called from here.
    const uintptr_t address = _Unwind_GetIP(context);
    if (_Unwind_GetCFA(context) <= trace.behind || address == 0) {
        return _URC_NO_REASON;
    }
    if (trace.count == trace.most) {
        return _URC_END_OF_STACK;
    }
    trace.addresses[trace.count++] = address;
    return _URC_NO_REASON;
}

} // namespace

UnwindRule UnwindRules::read(uintptr_t place) noexcept {
    const uint32_t bits = packed(rule_at(place));
    // Else the tag does not fit, or it is code that was made at run time and may be replaced.
    if (place >> 48 == 0 && modules().find(place)) {
        words_[index(place)].store(tag(place) << rule_bits | bits, std::memory_order_relaxed);
    }
    return unpacked(bits);
}

void UnwindRules::clear() noexcept {
    for (std::atomic<uint64_t> &word : words_) {
        word.store(0, std::memory_order_relaxed);
    }
}

bool Frame::leave(bool &is_known) noexcept {
    const UnwindRule rule = unwind_rules.at(place - is_return);
    is_known = rule.cfa != UnwindRule::Cfa::none;
    if (!is_known) {
        is_known = rule.is_end;
        return false;
    }
    const uintptr_t from = rule.cfa == UnwindRule::Cfa::from_sp ? stack_pointer : frame_pointer;
    const uintptr_t sum = from + uintptr_t(intptr_t(rule.cfa_offset));
    const uintptr_t cfa = rule.cfa == UnwindRule::Cfa::at_fp ? stack_word(sum) : sum;
    if (cfa <= stack_pointer) { // stacks grow downwards
        return is_known = false;
    }
    const uintptr_t saved = cfa + uintptr_t(intptr_t(rule.save_offset));
#if defined(__x86_64__)
    place = stack_word(cfa - 8);
    if (rule.saves_fp) {
        frame_pointer = stack_word(rule.cfa == UnwindRule::Cfa::at_fp ? frame_pointer : saved);
    }
#else
    place = unsign(stack_word(saved));
    if (rule.saves_fp) {
        frame_pointer = stack_word(saved - 8);
    }
#endif
    stack_pointer = cfa;
    is_return = true;
    return place != 0;
}

size_t walk_slowly(uintptr_t behind, uintptr_t *ret_addresses, size_t most) noexcept {
    Backtrace trace = {behind, ret_addresses, most, 0};
    _Unwind_Backtrace(&add_frame, &trace);
    return trace.count;
}

size_t walk(Frame frame, uintptr_t *ret_addresses, size_t most) noexcept {
    const uintptr_t behind = frame.stack_pointer;
    size_t count = 0;
    bool is_known = true;
    while (count < most && frame.leave(is_known)) {
        ret_addresses[count++] = frame.place;
    }
    return is_known ? count : walk_slowly(behind, ret_addresses, most);
}

} // namespace emm::observe
