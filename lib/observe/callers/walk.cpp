#include "observe/callers/walk.h"

#include "observe/callers/modules.h"

#include <unwind.h>

namespace emm::observe {
namespace {

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
