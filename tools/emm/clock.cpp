#include "clock.h"

#include <chrono>

namespace emm::tool {

double nanoseconds_per_tick() {
    static const double value = observe::nanoseconds_per_event_tick();
    return value;
}

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

} // namespace emm::tool
