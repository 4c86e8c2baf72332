#pragma once

#include "report/dimension.h"
#include "report/histograms.h"

#include <array>

namespace emm::tool {

// The answers to one question that matter at the peak; all other answers are one more group.
struct GroupSet {
    static constexpr size_t most = 9;

    std::string name;
    std::vector<std::string> labels;     // the last one is "others" if there are any
    std::vector<uint64_t> bytes, blocks; // at the peak
    std::vector<uint8_t> of;             // of each block
};

// By their bytes after `step`, largest first. Lifetimes keep their order.
GroupSet groups_of(const History &history, const Dimension &dimension, uint32_t step);

// The first question that tells blocks apart at the peak: none of its answers has nearly all of
// them. If there is no such question, the first with two answers, and last the question of
// lifetimes. `sets` are in the order library and caller (caller first if there is Python), lifetime
// and others, as far as they exist.
size_t leading_of(const std::vector<GroupSet> &sets);

// The bytes of each group when a bucket holds the most, and after its last step.
struct Stack {
    std::array<uint64_t, GroupSet::most + 1> high = {}, end = {};
};
std::vector<Stack> stacks_of(const History &history, const GroupSet &groups,
                             const std::vector<Bucket> &buckets);

} // namespace emm::tool
