#pragma once

#include "driver.h"

#include <cstdint>

namespace emm::tool {

// The time between two calls of the recorded program, in microseconds, as a replay plays it.
struct Interval {
    double pause = 0; // until the next call
    double work = 0;  // on its stream meanwhile; 0: no work
};

// The recording's own times between calls. The streams get about as much work as the program takes
// time. So the device is behind the program, as in a program that keeps it busy.
class RecordedPace {
public:
    explicit RecordedPace(double factor) : factor_(factor) {}

    // `gap`: as recorded; `has_stream`: the next call has a stream.
    Interval next(uint32_t gap, bool has_stream);

private:
    double factor_, owed_ = 0;
};

// Work that takes a given time: a kernel; on the simulated driver, work that progress=timed gives
// that time.
class TimedWork {
public:
    TimedWork(); // in the current context
    void put(CUstream stream, double microseconds) const;

private:
    int (*simulated_)(CUstream, uint64_t) = nullptr;
    CUfunction kernel_ = nullptr;
    decltype(&::cuLaunchKernel) launch_ = nullptr;
};

void pause(double microseconds);

} // namespace emm::tool
