#pragma once

#include <cstdint>

namespace emm::observe {

// How the frame of one place in code leads to its caller's, read from the call frame information
// (.eh_frame) that compilers write for exceptions. Three forms cover what they write for C and C++;
// whatever is otherwise (signals, hand-written code) is `none`.
//
// CFA: the stack pointer's value in the caller, after the call has returned.
struct UnwindRule {
    enum class Cfa : uint8_t {
        from_sp, // CFA = stack pointer + cfa_offset
        from_fp, // CFA = frame pointer + cfa_offset
        at_fp,   // CFA = what is stored at frame pointer + cfa_offset: a frame aligned anew
        none     // no caller is known
    };
    Cfa cfa = Cfa::none;
    bool saves_fp = false;   // else the frame pointer is the caller's still
    int32_t cfa_offset = 0;  // bytes, a multiple of 8
    int32_t save_offset = 0; // from the CFA: on x86-64 where the frame pointer is saved, on aarch64
                             // where the return address is, the frame pointer 8 bytes before it

    bool operator==(const UnwindRule &) const = default;
};

// From the entry for a function (FDE), the address where that begins, and a place within it.
// `entry` and what it refers to are as the dynamic linker has mapped them: trusted, as they are by
// every exception.
UnwindRule rule_from_entry(const uint8_t *entry, uintptr_t function, uintptr_t place) noexcept;

// The rule for a place in code of this process; none where no entry covers it.
UnwindRule rule_at(uintptr_t place) noexcept;

// 31 bits; none for what does not fit. And back.
uint32_t packed(const UnwindRule &rule) noexcept;
UnwindRule unpacked(uint32_t bits) noexcept;

} // namespace emm::observe
