#pragma once

#include "exchange/output.h"
#include "exchange/timeline.h"

namespace emm::tool {

struct SnapshotTotals {
    uint64_t events = 0;   // allocations, frees, drops and failures of device memory, as written
    uint64_t left_off = 0; // events left off, from the beginning
    uint64_t live = 0;     // blocks in the end
    Drops drops;           // blocks of the whole log; as frees in the snapshot
};

// Writes the device memory of an event log as a memory snapshot of PyTorch, of each device the
// `last` events. A log does not tell the plugin's memory from the driver, so each block is a
// segment of its own. Throws Failure.
SnapshotTotals export_snapshot(Timeline &timeline, const CallSites &sites, uint64_t last,
                               Output &output);

struct ChromeTotals {
    uint64_t allocations = 0, frees = 0, failures = 0;
    uint64_t left_off = 0; // events, from the beginning
    Drops drops;
};

// Writes an event log in the Chrome trace format (JSON), which Perfetto loads. Each device and each
// of its streams is a process there: the device has counters, and calls that concern no block; the
// stream has a slice for each block from its allocation to its free. Of each device the file has
// the `last` events, and the blocks that are live when these begin. Throws Failure.
ChromeTotals export_chrome_trace(Timeline &timeline, const CallSites &sites, uint64_t last,
                                 Output &output);

struct ProfileTotals {
    uint64_t samples = 0;               // as written
    uint64_t allocations = 0, live = 0; // live: in the end
};

// Writes an event log as a heap profile of pprof, in gzip format: by caller, all allocations, the
// live memory in the end, and the live memory at the device's peak. Reads the log twice. Throws
// Failure.
ProfileTotals export_profile(Timeline &timeline, const CallSites &sites, Output &output);

// The same for the live memory of a process that tracks its allocations. Throws Failure.
ProfileTotals export_live_profile(int64_t pid, Output &output);

} // namespace emm::tool
