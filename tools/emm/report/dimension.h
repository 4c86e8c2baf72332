#pragma once

#include "report/callers.h"
#include "report/history.h"

#include <optional>

namespace emm::tool {

// A question about each block, and its answers by number: the caller, the lifetime, the size.
struct Dimension {
    std::string name;
    std::vector<std::string> labels;
    std::vector<uint32_t> of; // of each block of a history
};

// Without offsets, so that all calls of one function are one caller.
Dimension by_library(const History &history, const CallSites &sites);
Dimension by_caller(const History &history, const Callers &callers);
Dimension by_tag(const History &history, const CallSites &sites); // emm_tag_begin

// The lifetimes of blocks, in four classes of the history's length. Blocks that were never freed,
// or that were dropped by a reset or with their context, are two more classes.
Dimension by_lifetime(const History &history);

// The sizes with the most bytes live after `step`, and powers of two for all others.
Dimension by_size(const History &history, uint32_t step);

Dimension by_stream(const History &history);
Dimension by_thread(const History &history);
// By the pool that served the block: a named pool, or a CUDA context's own.
Dimension by_pool(const History &history, const Recorded &recorded);

// Whether the block is live after the step.
inline bool is_live(const Allocation &block, uint32_t step) {
    return block.first_step <= step && block.last_step > step;
}

} // namespace emm::tool
