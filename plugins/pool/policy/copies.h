// What of a paused pool is copied.
#pragma once

#include <cstdint>
#include <vector>

namespace emm::pool {

struct Range {
    uint64_t begin = 0, end = 0;

    uint64_t bytes() const { return end - begin; }
    bool operator==(const Range &other) const { return begin == other.begin && end == other.end; }
};

// A copy costs the driver about as much as half a MiB of it costs the bus: less lies between two
// ranges, and both are copied as one.
constexpr uint64_t largest_gap = 512 << 10;

// What is in `used` and lies within one of `places`, in as few ranges as are worth it. Both are
// ordered by the address, and the ranges of each lie apart; those of places may touch.
std::vector<Range> ranges_to_copy(const std::vector<Range> &used, const std::vector<Range> &places);

// What is in both; the same order.
std::vector<Range> common_ranges(const std::vector<Range> &one, const std::vector<Range> &other);

} // namespace emm::pool
