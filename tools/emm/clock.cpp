#include "clock.h"

#include <chrono>

namespace emm::tool {
namespace {

double calibrate() {
#if defined(__x86_64__)
    const double began = seconds_now();
    const uint64_t from = ticks();
    double now = began;
    while (now - began < 0.02) {
        now = seconds_now();
    }
    return (now - began) * 1e9 / static_cast<double>(ticks() - from);
#else
    using Period = std::chrono::steady_clock::period;
    return 1e9 * Period::num / Period::den;
#endif
}

} // namespace

double nanoseconds_per_tick() {
    static const double value = calibrate();
    return value;
}

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

} // namespace emm::tool
