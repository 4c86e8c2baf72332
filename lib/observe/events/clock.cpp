#include "observe/events/clock.h"

#include <ctime>

namespace emm::observe {

#if defined(__x86_64__)
namespace {

struct Moment {
    uint64_t ticks;
    double nanoseconds;
};

// The reading that was interrupted least.
Moment now() noexcept {
    Moment best = {};
    uint64_t shortest = ~uint64_t(0);
    for (int i = 0; i < 5; ++i) {
        timespec time;
        const uint64_t before = event_ticks();
        clock_gettime(CLOCK_MONOTONIC, &time);
        const uint64_t after = event_ticks();
        if (after - before < shortest) {
            shortest = after - before;
            best = {before + shortest / 2,
                    static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec)};
        }
    }
    return best;
}

} // namespace

double nanoseconds_per_event_tick() noexcept {
    const Moment from = now();
    const timespec pause = {0, 5'000'000};
    nanosleep(&pause, nullptr);
    const Moment to = now();
    return (to.nanoseconds - from.nanoseconds) / static_cast<double>(to.ticks - from.ticks);
}
#else
double nanoseconds_per_event_tick() noexcept {
    return 1;
}
#endif

} // namespace emm::observe
