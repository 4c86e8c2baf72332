#pragma once

#include "report/history.h"

namespace emm::tool {

// Blocks by a measure. Bar i has those from `from` up to the next bar's.
struct Bar {
    uint64_t from = 0;
    uint64_t blocks = 0, bytes = 0; // of all blocks that were ever allocated
    uint64_t peak_bytes = 0;        // of the blocks that were live at the peak
};

// Lifetimes of freed blocks, in nanoseconds: 0, 1 us, 3 us, 10 us and so on. Bars at the ends
// without blocks are left off.
std::vector<Bar> lifetimes_of(const History &history, uint32_t peak_step);

// The blocks that were never freed, and those that a reset or the end of their context dropped.
Bar unfreed_of(const History &history, uint32_t peak_step);
Bar dropped_of(const History &history, uint32_t peak_step);

// Sizes, by powers of two.
std::vector<Bar> sizes_of(const History &history, uint32_t peak_step);

// The exact sizes with the most bytes at the peak, largest first; `from` is the size.
std::vector<Bar> leading_sizes_of(const History &history, uint32_t peak_step, size_t most);

// The state with the most live bytes, which follows `step`; of several, the first.
struct Peak {
    uint64_t bytes = 0, blocks = 0;
    uint32_t step = 0;
    uint64_t time = 0;
};
Peak peak_of(const History &history);

// The blocks that are live after the last step.
struct Left {
    uint64_t bytes = 0, blocks = 0;
};
Left left_of(const History &history);

// Consecutive steps, with the least and the most bytes live after one of them.
struct Bucket {
    uint32_t first_step = 0, last_step = 0;
    uint64_t first_time = 0, last_time = 0;
    uint64_t low = 0, high = 0, end = 0; // bytes; `end` after the last step
    uint32_t high_step = 0;              // the first step with `high` bytes
};

// No bucket has more than one `most`th of the steps, or more than one `most`th of the time. So
// there are at most twice as many, and none is wide on an axis of steps or of time.
std::vector<Bucket> buckets_of(const History &history, size_t most);

// Figures of a series with one value for each step.
struct Extent {
    uint64_t low = 0, high = 0, end = 0;
};
std::vector<Extent> extents_of(const std::vector<uint64_t> &series,
                               const std::vector<Bucket> &buckets);

} // namespace emm::tool
