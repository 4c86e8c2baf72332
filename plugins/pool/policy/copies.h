// Chooses the ranges of a paused pool that are copied.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace emm::pool {

struct Range {
    uint64_t begin = 0, end = 0;

    uint64_t bytes() const { return end - begin; }
    bool operator==(const Range &other) const { return begin == other.begin && end == other.end; }
};

// A copy costs the driver about as much time as half a MiB takes on the bus. If the gap between two
// ranges is smaller, both are copied as one.
constexpr uint64_t largest_gap = 512 << 10;

// The parts of `used` inside `places`, with small gaps closed. Both lists are in the order of
// addresses and do not overlap; ranges of `places` may touch.
std::vector<Range> ranges_to_copy(const std::vector<Range> &used, const std::vector<Range> &places);

// `places` with the rest of each range of `used` that lies within one of them in part. All are
// ordered by the address, and the ranges of each lie apart.
std::vector<Range> with_whole_blocks(std::vector<Range> places, const std::vector<Range> &used);

// The size of one part of a copy. While a part is under way, the driver gives back or makes the
// memory of another part. Each part costs an event, and the driver's calls for the last part run
// beside no copy.
constexpr uint64_t part_bytes(uint64_t bytes) {
    return std::clamp<uint64_t>(bytes / 16, 16 << 20, 128 << 20);
}

// The intersection of both, in the same order.
std::vector<Range> common_ranges(const std::vector<Range> &one, const std::vector<Range> &other);

} // namespace emm::pool
