#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#else
#include <ctime>
#endif

namespace emm::observe {

// The clock of the event log. On x86 it is the time stamp counter, read after all earlier
// instructions have been executed. So a block's free never seems to start before its allocation has
// ended.
inline uint64_t event_ticks() noexcept {
#if defined(__x86_64__)
    unsigned processor;
    return __rdtscp(&processor);
#else
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
#endif
}

// The same, for a moment that need not be ordered with the surrounding code: half the cost.
inline uint64_t event_ticks_unordered() noexcept {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return event_ticks();
#endif
}

// Compares the clock with the monotonic clock, which takes 5 ms.
double nanoseconds_per_event_tick() noexcept;

} // namespace emm::observe
