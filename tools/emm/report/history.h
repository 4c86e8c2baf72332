#pragma once

#include "exchange/timeline.h"
#include "trace/file.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace emm::tool {

inline constexpr uint64_t never = ~uint64_t(0);
inline constexpr uint32_t no_step = ~uint32_t(0);

// One allocation. Times are nanoseconds since the recording began.
struct Allocation {
    uint64_t address = 0, size = 0;
    uint64_t begin = 0, end = never;
    uint32_t first_step = 0, last_step = no_step; // of its history
    uint32_t site = 0;                            // of CallSites
    uint16_t stream = 0, thread = 0;              // of Names
    uint16_t freed_on = 0;                        // the stream of its free
    uint16_t context = 0;                         // of the recording's names
    Drop dropped = Drop::none;                    // how it ended, if not by a free
};

// Texts by number. The last number stands for all texts beyond the limit.
class Names {
public:
    static constexpr size_t most = 1 << 12;

    uint16_t number_of(uint64_t name);
    std::string text(uint16_t number) const;
    bool is_none(uint16_t number) const {
        return number < names_.size() && names_[number] == never;
    }
    size_t size() const { return names_.size(); }

private:
    std::vector<uint64_t> names_;
    std::unordered_map<uint64_t, uint16_t> numbers_;
};

// A part of a recording, by time: nanoseconds since the recording began. Blocks that are live at
// its beginning belong to it.
struct Part {
    uint64_t from = 0, to = never;

    bool is_all() const { return from == 0 && to == never; }
    bool has(uint64_t time) const { return time >= from && time <= to; }
};

// The history of one kind of memory on one device: its allocations, and the steps, each an
// allocation or its end, in the order in which memory changed hands. A block that a reset or the
// end of the context drops counts as freed for `is_free`; `drops` counts it too.
struct History {
    uint64_t device = 0;
    Memory memory = Memory::device;
    std::vector<Allocation> blocks;
    std::vector<uint32_t> steps; // a block's number times two; plus one for its end
    Names streams, threads;
    Drops drops;
    uint64_t begin = 0;     // of its part; times of blocks may lie outside
    size_t live_before = 0; // the first blocks, allocated as the part begins

    const Allocation &block_of(size_t step) const { return blocks[steps[step] / 2]; }
    bool is_free(size_t step) const { return steps[step] % 2 == 1; }
    uint64_t time_of(size_t step) const {
        return is_free(step) ? block_of(step).end : std::max(block_of(step).begin, begin);
    }
};

// An event that is neither an allocation nor a free: a failure, a reset, a step of the program.
struct Mark {
    uint64_t time = 0;
    std::string text;
    uint64_t size = 0; // asked for, of a failure
    uint32_t site = 0;
    bool is_failure = false;
    std::optional<uint64_t> free = std::nullopt; // bytes of the device, as the log tells
};

struct Recorded {
    const char *kind = "trace"; // "event log", snapshot_kind
    bool is_log = false;        // with addresses, and perhaps with callers
    uint64_t rows = 0;
    uint64_t begin = 0, end = 0; // times of the first and the last event
    uint64_t last = 0;           // of the last event of the whole recording
    Part part;                   // of the recording
    std::vector<History> histories;
    uint64_t left_off = 0; // events of the histories that are left out
    CallSites sites;
    Names contexts;                                     // a named pool has a number of its own,
    std::unordered_map<std::string, std::string> pools; // of which this has "NAME (context N)"
    std::vector<Mark> marks;                            // the first ones
    uint64_t mark_count = 0, failure_count = 0;

    // After each step of the first history, if a whole snapshot tells it: PyTorch's memory from the
    // driver, and the part of it that waited for the device.
    struct Reserve {
        std::vector<uint64_t> reserved, pending;
        uint64_t taken = 0, given_back = 0; // segments
    };
    std::optional<Reserve> reserve;

    static constexpr char snapshot_kind[] = "PyTorch snapshot";
    bool is_snapshot() const { return kind == snapshot_kind; }
};

// Makes the histories out of events in their order.
class HistoryBuilder {
public:
    static constexpr size_t most_histories = 16, most_marks = 1000;

    // For a whole recording, or a part of it.
    explicit HistoryBuilder(Recorded &recorded, Part part = {})
        : recorded_(recorded), part_(part) {}

    // `key` names the block until its end. Throws Malformed.
    void allocated(uint64_t key, uint64_t device, Memory memory, uint64_t stream, uint64_t thread,
                   const Allocation &block);
    // False: no such block is live.
    bool freed(uint64_t key, uint64_t time, uint64_t stream);
    bool dropped(uint64_t key, uint64_t time, Drop drop);
    void marked(Mark mark);

    // Cuts the histories to the part. Sorts them: device memory before other memory, then the
    // largest peaks first.
    void finish();

private:
    struct Place {
        uint32_t history, block;
        uint64_t size;
    };

    uint32_t history_of(uint64_t device, Memory memory);
    uint64_t moved_clock(uint64_t time);
    std::optional<Place> ended(uint64_t key, uint64_t time);

    Recorded &recorded_;
    const Part part_;
    bool is_begun_ = false;
    std::unordered_map<uint64_t, Place> live_;
    std::vector<uint64_t> live_bytes_, peak_bytes_; // of each history
};

// The part of a history within a time. Peaks are those of the part.
History history_in(const History &history, Part part);

// The part of a recording to read: some seconds, or a step of the program, which begins at the mark
// of that number and ends at the next mark.
struct PartChoice {
    Part part;
    std::optional<int64_t> step;
    std::optional<uint64_t> device; // of a snapshot with several
};

// Reads an event log, a trace or a snapshot of PyTorch. If the program of a log was killed, the log
// is completed first. Calls `report` with the share that has been read. Throws Failure.
Recorded read_recorded(const Input &input, const PartChoice &choice,
                       const std::function<void(double)> &report);

} // namespace emm::tool
