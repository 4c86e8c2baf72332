#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#else
#include <chrono>
#endif

namespace emm::tool {

// The cheapest clock there is: the processor's time stamp counter (10 ns a reading), which runs at
// a constant rate on everything that drives a GPU, or the steady clock elsewhere (23 ns).
inline uint64_t ticks() {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// The same after everything before it has been executed, as libemm's event log reads it.
inline uint64_t ordered_ticks() {
#if defined(__x86_64__)
    unsigned processor;
    return __rdtscp(&processor);
#else
    return ticks();
#endif
}

// Compared with the steady clock once, which takes 20 ms.
double nanoseconds_per_tick();

// The steady clock, for everything but single calls.
double seconds_now();

} // namespace emm::tool
