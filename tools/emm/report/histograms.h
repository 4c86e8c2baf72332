#pragma once

#include "report/history.h"

namespace emm::tool {

// Blocks by a measure. Bar i has those from `from` up to the next bar's.
struct Bar {
    uint64_t from = 0;
    uint64_t blocks = 0, bytes = 0; // all that were ever allocated
    uint64_t peak_bytes = 0;        // of those that were live at the peak
};

// Lifetimes of freed blocks, in nanoseconds: 0, 1 us, 3 us, 10 us and so on. Bars at the ends that
// have no blocks are left off.
std::vector<Bar> lifetimes_of(const History &history, uint32_t peak_step);

// Those that were never freed, and those that a reset or the end of their context dropped.
Bar unfreed_of(const History &history, uint32_t peak_step);
Bar dropped_of(const History &history, uint32_t peak_step);

// Sizes, by powers of two.
std::vector<Bar> sizes_of(const History &history, uint32_t peak_step);

// The exact sizes with the most bytes at the peak, largest first; `from` is the size.
std::vector<Bar> leading_sizes_of(const History &history, uint32_t peak_step, size_t most);

// The largest blocks that are live at the peak, by number.
std::vector<uint32_t> largest_at(const History &history, uint32_t step, size_t most);

} // namespace emm::tool
