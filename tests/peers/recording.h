#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <vector>

namespace emm::peers {

struct Event {
    bool is_free;
    uint32_t stream;
    uint32_t block; // from 0, in order of allocation
    size_t size;
};

struct Recording {
    std::vector<Event> events;
    uint32_t streams = 1;
    uint32_t blocks = 0;
};

// Reads one event a line: `+ STREAM BLOCK SIZE` or `- STREAM BLOCK SIZE`. Throws std::runtime_error
// for other lines.
Recording read_recording(std::istream &input);

// RMM's benchmark of random allocations as a recording: `count` allocations of 1 byte to
// `largest`, 73 in 100 steps allocate, at most 16,000 MiB are live, and a random block goes
// whenever none is allocated.
Recording random_allocations(uint32_t count, size_t largest);

} // namespace emm::peers
