// How much a request tries: how large it may be, and numbers that end loops over what other threads
// may change meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emm::pool {

// Beyond any address space, so that no sum overflows: larger requests are refused.
constexpr uint64_t largest_request = uint64_t(1) << 56;

// Blocks of another stream that a request looks at for one with an event to wait for: the tightest
// ones, because a loose one is better kept for others. And streams whose pieces it may wait for.
constexpr int most_candidates = 8;

// Times that a request which the driver has refused tries again because other threads have given
// memory back. It ends where they take that memory as quickly.
constexpr int most_reclaims = 64;

// Times that a request asks for memory beside free memory of its own, which other threads may be
// quicker with; the last time it gets a range of addresses alone.
constexpr int most_fills = 4;

// Parts of free memory that are searched for idle pieces: enough for nearly every program when some
// of them are to move, and a few at a time when they go back to the driver, largest parts last.
constexpr size_t parts_to_move = 4096;
constexpr size_t parts_to_release = 64;

} // namespace emm::pool
