#pragma once

#include "exchange/output.h"
#include "exchange/recording.h"

#include <cstdint>

namespace emm::tool {

// What became of a recording.
struct Conversion {
    uint64_t allocations = 0, frees = 0; // as written
    uint64_t live_before = 0;            // blocks whose allocation the recording lacks
    uint64_t live_before_bytes = 0;
    uint64_t missed_frees = 0; // an address was given out again
    uint64_t stray_frees = 0;  // of what was freed before
    uint64_t threads = 0, streams = 0;
    uint64_t peak_live_bytes = 0;
};

// Writes a recording as a trace for `emm replay`. A block that is freed or live in the end and was
// never allocated was live before the recording begins: the trace allocates it first.
// `report` is called every now and then.
Conversion convert(Recording &recording, Output &output, const std::function<void()> &report);

} // namespace emm::tool
