#pragma once

#include <cstdint>

namespace emm::observe {

// How to get from a frame at one place in code to its caller's frame. The rule comes from the call
// frame information (.eh_frame) that compilers write for exceptions. Three forms cover compiled C
// and C++; everything else (signals, hand-written code) is `none`.
//
// CFA: the stack pointer's value in the caller, after the call has returned.
struct UnwindRule {
    enum class Cfa : uint8_t {
        from_sp, // CFA = stack pointer + cfa_offset
        from_fp, // CFA = frame pointer + cfa_offset
        at_fp,   // CFA = the word stored at frame pointer + cfa_offset: a realigned frame
        none     // the caller is unknown
    };
    Cfa cfa = Cfa::none;
    bool saves_fp = false;  // else the frame pointer still is the caller's
    int32_t cfa_offset = 0; // bytes, a multiple of 8
    // From the CFA: on x86-64 where the frame pointer is saved, on aarch64 where the return address
    // is, the frame pointer 8 bytes before it.
    int32_t save_offset = 0;

    bool operator==(const UnwindRule &) const = default;
};

// The rule for a place in a function. `entry` is the function's entry (FDE), and `function` its
// address. The function trusts `entry` and everything it refers to, as C++ exceptions do: the
// dynamic linker has mapped them.
UnwindRule rule_from_entry(const uint8_t *entry, uintptr_t function, uintptr_t place) noexcept;

// The rule for a place in code of this process; `none` if no entry covers the place.
UnwindRule rule_at(uintptr_t place) noexcept;

// A rule in 31 bits; `none` if it does not fit. And back.
uint32_t packed(const UnwindRule &rule) noexcept;
UnwindRule unpacked(uint32_t bits) noexcept;

} // namespace emm::observe
