#pragma once

#include "exchange/output.h"
#include "exchange/timeline.h"
#include "problem.h"
#include "trace/builder.h"
#include "trace/trace.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace emm::tool {

// One event of a recording by another program: an allocation, a free or a mark. A failed allocation
// is a mark.
struct RecordedEvent {
    uint64_t time = 0; // microseconds since some moment
    uint64_t thread = 0;
    uint64_t stream = 0;
    Op op = Op::mark;
    uint64_t address = 0;
    uint64_t size = 0;
    uint32_t site = 0; // of the recording's call sites
    bool is_failure = false;
    uint64_t free = 0; // of the device, at a failure
    // After the event, as far as the recording tells: the allocator's memory from the driver, and
    // the freed part of it that waits for the device.
    uint64_t reserved = 0, pending = 0;
};

struct RecordedBlock {
    uint64_t address = 0, size = 0, stream = 0;
    uint32_t site = 0;
};

// A recording that another program made. Its beginning may be lost. Throws Failure.
class Recording {
public:
    using Visit = std::function<void(const RecordedEvent &)>;

    virtual ~Recording() = default;

    // Calls `visit` with all events in their order. Each call starts again at the first event.
    virtual void visit(const Visit &visit) = 0;

    // The device of all events; 0 if the recording names none.
    virtual uint64_t device() const { return 0; }

    // The blocks that are live in the end, as far as the recording lists them.
    virtual std::vector<RecordedBlock> live_in_the_end() const { return {}; }

    // Bytes live before the first event, as far as the recording tells.
    virtual uint64_t bytes_before() const { return 0; }

    // True: the recording has no addresses, so a free ends the latest allocation of its size.
    virtual bool is_matched_by_size() const { return false; }

    // Who called, as far as the recording tells; complete when the events have been visited.
    virtual const CallSites &sites() const;

    virtual const char *kind() const = 0;
};

// Takes the events of a recording that was made whole: times begin at 0 and never decrease, and a
// free has the size of its block. Threads and streams are numbered from 0 in order of appearance.
class RecordingVisitor {
public:
    struct Place {
        uint64_t id; // of the block
        uint64_t thread, stream;
    };

    virtual ~RecordingVisitor() = default;
    virtual void allocated(const RecordedEvent &event, const Place &place) = 0;
    virtual void freed(const RecordedEvent &event, const Place &place) = 0;
    virtual void marked(const RecordedEvent &event, const Place &place) = 0;
};

// The device of a recording: the user's choice, else the only device with events. `devices` are
// those with events, in order. Throws Malformed.
uint64_t choose_device(const std::vector<uint64_t> &devices, std::optional<uint64_t> chosen);

// The result of converting a recording.
struct Conversion {
    uint64_t allocations = 0, frees = 0; // as written
    uint64_t live_before = 0;            // blocks whose allocation the recording lacks
    uint64_t live_before_bytes = 0;
    uint64_t missed_frees = 0; // an address was given out again
    uint64_t stray_frees = 0;  // of memory that was freed before
    uint64_t threads = 0, streams = 0;
    uint64_t peak_live_bytes = 0;
};

// A block that is freed, or live in the end, without an allocation was live before the recording
// begins: it is allocated first. `report` is called now and then.
Conversion go_through(Recording &recording, RecordingVisitor &visitor,
                      const std::function<void()> &report);

// Writes a recording as an event log of one device, with addresses and callers.
Conversion convert_to_log(Recording &recording, Output &output,
                          const std::function<void()> &report);

// Writes a recording as a trace for `emm replay`.
Conversion convert(Recording &recording, Output &output, const std::function<void()> &report);

} // namespace emm::tool
