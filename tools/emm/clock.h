#pragma once

#include "observe/events/clock.h"

namespace emm::tool {

// The length of a tick of observe::event_ticks(), for single calls. Compared with the steady clock
// once.
double nanoseconds_per_tick();

// The steady clock, for all other times.
double seconds_now();

} // namespace emm::tool
