#pragma once

#include "report/dimension.h"

namespace emm::tool {

// What is live at a moment: a tree with a level for each question. The bytes of a node are the sum
// of its children's.
struct FlameNode {
    static constexpr size_t most_children = 24;

    std::string name;
    uint64_t bytes = 0, blocks = 0;
    std::vector<FlameNode> children; // largest first; what is too many is the last one
};

FlameNode flame_of(const History &history, const std::vector<const Dimension *> &levels,
                   uint32_t step);

// By the calls of Python, as deep as each block's go, and by size behind them.
FlameNode flame_of_calls(const History &history, const CallPaths &calls, const Dimension &sizes,
                         uint32_t step);

} // namespace emm::tool
