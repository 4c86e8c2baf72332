#pragma once

#include "exchange/output.h"
#include "exchange/timeline.h"

namespace emm::tool {

struct SnapshotTotals {
    uint64_t events = 0;   // allocations, frees, drops and failures of device memory, as written
    uint64_t left_off = 0; // such events, from the beginning
    uint64_t live = 0;     // blocks in the end
    Drops drops;           // blocks of the whole log; as frees in the snapshot
};

// Writes the device memory of an event log as a memory snapshot of PyTorch, of each device the
// `last` events. What the plugin had taken from the driver is not in a log: each block is a segment
// of its own. Throws Failure.
SnapshotTotals export_snapshot(Timeline &timeline, const CallSites &sites, uint64_t last,
                               Output &output);

} // namespace emm::tool
