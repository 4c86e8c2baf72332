// How hard a request tries: its largest size, and bounds of loops over state that other threads may
// change meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emm::pool {

// Beyond any address space, so that no sum overflows; larger requests are refused.
constexpr uint64_t largest_request = uint64_t(1) << 56;

// Blocks of another stream among which a request looks for one with an event to wait for: the
// tightest ones, because loose ones are better kept for others. Also the number of streams whose
// pieces it may wait for.
constexpr int most_candidates = 8;

// Times that a refused request tries again because other threads have given memory back. This ends
// if they take that memory as fast.
constexpr int most_reclaims = 64;

// Times that a request asks for memory beside its own free memory, which other threads may take
// first. The last time it gets a range of addresses of its own.
constexpr int most_fills = 4;

// Parts of free memory that are searched for idle pieces. For moves this is enough for nearly every
// program. When pieces go back to the driver, a few are searched at a time, the largest last.
constexpr size_t parts_to_move = 4096;
constexpr size_t parts_to_release = 64;

} // namespace emm::pool
