#pragma once

#include "observe/callers/stacks.h"
#include "observe/events/clock.h"
#include "observe/events/record.h"
#include "observe/events/spool.h"

#include <emm/status.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// EMM_EVENT_LOG: every allocation and free, as a row of a CSV file.
//
//     threads           spool (a shared mapping)             writer thread
//     buffer 0  ----->  [chunk][chunk][chu...  ---------.
//     buffer 1  ----->  [chunk][ch...          ---------+--> merge by moment, count --> log.csv
//     buffer 2  ----->  [chunk][chunk][...     ---------'
//
// A thread puts 64 bytes into its buffer's chunk, and that is all it does. The writer thread takes
// each buffer's records up to a moment that no later record can precede. It orders them, counts,
// looks up the callers, and writes rows. If the process was killed, emm_event_log_recover turns the
// records in the spool into rows.
namespace emm::observe {

class EventLog;

// The records of one thread at a time. Their moments never decrease, except where calls nest.
class alignas(64) EventBuffer {
public:
    explicit EventBuffer(uint32_t number) : number_(number) {}

    // Call this before reading the clock that decides the moment. From then until `commit`, no
    // event later than this buffer's latest moment may be written. Pass the result to `commit`,
    // because events may nest.
    uint64_t begin() noexcept {
        const uint64_t outer = busy_since_.load(std::memory_order_relaxed);
        if (outer == 0) {
            busy_since_.store(latest_, std::memory_order_release);
        }
        return outer;
    }
    // Sharpens `begin` when a call lies between the reading and the commit.
    void began(uint64_t moment) noexcept {
        if (latest_ < moment) {
            latest_ = moment;
        }
        busy_since_.store(moment, std::memory_order_release);
    }
    // The place of the next record, to be filled in place, because a copy of freshly stored data
    // would stall. NULL: there is no room, and the event is lost.
    EventRecord *next(uint64_t caller) noexcept {
        const bool has_room = chunk_ && used_ != Chunk::capacity;
        return caller - module_.begin < module_.end - module_.begin && has_room
                   ? &chunk_->records[used_]
                   : next_slowly(caller);
    }
    void commit(uint64_t moment, uint64_t outer) noexcept {
        latest_ = moment;
        chunk_->committed.store(++used_, std::memory_order_release);
        busy_since_.store(outer, std::memory_order_release);
        if (is_immediate.load(std::memory_order_relaxed)) [[unlikely]] {
            write_all();
        }
    }
    // Replaces `commit` for an event that is lost.
    void abandon(uint64_t outer) noexcept { busy_since_.store(outer, std::memory_order_release); }

private:
    friend class EventLog;
    struct Range {
        uint64_t begin, end;
    };

    [[gnu::noinline, gnu::cold]] EventRecord *next_slowly(uint64_t caller) noexcept;
    [[gnu::noinline, gnu::cold]] static void write_all() noexcept;

    // Set when the process is ending: each recording thread also writes.
    static inline std::atomic<bool> is_immediate{false};

    Chunk *chunk_ = nullptr;
    uint32_t used_ = 0; // records used in chunk_
    const uint32_t number_;
    uint64_t latest_ = 1;                 // the latest moment
    std::atomic<uint64_t> busy_since_{0}; // 0: not busy
    Range module_ = {0, 0};               // range of the latest caller
    std::vector<Range> modules_;          // ranges of all callers
    uint64_t sequence_ = 0;               // of the next chunk
    std::vector<Chunk *> chunks_;         // guarded by the log
};

// The calling thread's buffer, if it has one yet. It lies in the library's static TLS block, so
// that reading it is one instruction.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit EventBuffer *own_event_buffer;
[[gnu::noinline, gnu::cold]] EventBuffer *take_event_buffer() noexcept;

// NULL: there is no memory for a buffer.
inline EventBuffer *event_buffer() noexcept {
    return own_event_buffer ? own_event_buffer : take_event_buffer();
}

// The value for EventRecord::python.
uint32_t python_calls_number(const Stack &stack) noexcept;

// Opens the log that EMM_EVENT_LOG names. Only the first call decides; it warns if the log cannot
// be opened. True: events are to be recorded.
bool open_event_log() noexcept;

} // namespace emm::observe
