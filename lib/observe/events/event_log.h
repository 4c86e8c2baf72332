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
// what every buffer has up to a moment that none can fall behind, puts it in order, counts, looks
// up who called, and writes rows. What a killed process leaves in the spool becomes rows when
// emm_event_log_recover is called.
namespace emm::observe {

class EventLog;

// What one thread at a time records. Its moments never decrease but where calls nest.
class alignas(64) EventBuffer {
public:
    explicit EventBuffer(uint32_t number) : number_(number) {}

    // Comes before the reading of the clock that decides the moment. From then to `commit`, nothing
    // that is later than this buffer's latest moment may be written. The answer is for `commit`: an
    // event may lie within another.
    uint64_t begin() noexcept {
        const uint64_t outer = busy_since_.load(std::memory_order_relaxed);
        if (outer == 0) {
            busy_since_.store(latest_, std::memory_order_release);
        }
        return outer;
    }
    // Says more exactly since when, where a call lies between the reading and the commit.
    void began(uint64_t moment) noexcept {
        if (latest_ < moment) {
            latest_ = moment;
        }
        busy_since_.store(moment, std::memory_order_release);
    }
    // Where the next record goes: filled in place, because a copy would wait for what was just
    // stored. NULL: there is no room, and the event is lost.
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
    // In place of `commit`, for an event that is lost.
    void abandon(uint64_t outer) noexcept { busy_since_.store(outer, std::memory_order_release); }

private:
    friend class EventLog;
    struct Range {
        uint64_t begin, end;
    };

    [[gnu::noinline, gnu::cold]] EventRecord *next_slowly(uint64_t caller) noexcept;
    [[gnu::noinline, gnu::cold]] static void write_all() noexcept;

    // The process is ending: who records also writes.
    static inline std::atomic<bool> is_immediate{false};

    Chunk *chunk_ = nullptr;
    uint32_t used_ = 0; // of that
    const uint32_t number_;
    uint64_t latest_ = 1;                 // moment
    std::atomic<uint64_t> busy_since_{0}; // 0: it is not
    Range module_ = {0, 0};               // where the latest caller was
    std::vector<Range> modules_;          // where any was
    uint64_t sequence_ = 0;               // of the next chunk
    std::vector<Chunk *> chunks_;         // guarded by the log
};

// The calling thread's buffer, if it has one yet. In the library's static TLS block: reading it is
// one instruction.
[[gnu::tls_model("initial-exec")]] extern thread_local constinit EventBuffer *own_event_buffer;
[[gnu::noinline, gnu::cold]] EventBuffer *take_event_buffer() noexcept;

// NULL: there is no memory for one.
inline EventBuffer *event_buffer() noexcept {
    return own_event_buffer ? own_event_buffer : take_event_buffer();
}

// For EventRecord::python.
uint32_t python_calls_number(const Stack &stack) noexcept;

// Opens the log that EMM_EVENT_LOG names; the first call decides, and warns if it cannot be opened.
// True: events are to be recorded.
bool open_event_log() noexcept;

} // namespace emm::observe
