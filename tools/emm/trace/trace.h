#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emm::tool {

enum class Op : uint8_t { alloc, free, mark, defer_begin, defer_end };

// The word for `op` in a trace file.
const char *name_of(Op op);

// How the recorded program lost a block without a free: a reset of the context dropped it, or the
// context's end.
enum class Drop : uint8_t { none, reset, context_end };

// How many blocks were lost so.
struct Drops {
    uint64_t by_reset = 0, with_context = 0;

    void add(Drop drop) {
        by_reset += drop == Drop::reset;
        with_context += drop == Drop::context_end;
    }
    uint64_t all() const { return by_reset + with_context; }
};

// ", 3 dropped by a reset, 10 dropped with their context"; "": no drops.
std::string drops_text(const Drops &drops);

// One call of the recorded program. Threads, streams and blocks are numbered from 0 in order of
// appearance, whatever their names in the file.
struct Event {
    Op op = Op::mark;
    uint16_t thread = 0;
    uint16_t stream = 0;
    uint32_t block = 0;
    uint32_t gap = 0; // microseconds since the event before, at most an hour
    uint64_t size = 0;
};

inline constexpr uint32_t longest_gap = 3600u * 1000 * 1000;

// A replay starts that many threads and creates that many streams; a file with more is broken.
inline constexpr uint32_t most_threads = 1024, most_streams = 4096;

struct Trace {
    std::string name; // the user's name for it
    std::vector<Event> events;
    uint32_t blocks = 0;
    uint32_t threads = 0;
    uint32_t streams = 0;
    uint32_t unordered = most_streams; // the number of EMM_STREAM_UNORDERED, if that is a stream
    uint32_t open_sections = 0;        // deferred sections that the program never left
    uint64_t peak_live_bytes = 0;      // as asked for
    Drops drops;                       // frees among the events that the program did not call

    // Events that call emm: all but marks.
    uint64_t calls() const;
};

} // namespace emm::tool
