#include "report/flame.h"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>
#include <map>

namespace emm::tool {
namespace {

struct FlameSum {
    uint64_t bytes = 0, blocks = 0;
};
using FlamePath = std::vector<uint32_t>; // an answer for each level
using FlameSums = std::map<FlamePath, FlameSum>;

FlameSums flame_sums_of(const History &history, const std::vector<const Dimension *> &levels,
                        uint32_t step) {
    FlameSums sums;
    FlamePath path(levels.size());
    for (size_t i = 0; i < history.blocks.size(); i++) {
        if (is_live(history.blocks[i], step)) {
            for (size_t level = 0; level < levels.size(); level++) {
                path[level] = levels[level]->of[i];
            }
            FlameSum &sum = sums[path];
            sum.bytes += history.blocks[i].size;
            sum.blocks++;
        }
    }
    return sums;
}

void merge_small_nodes(FlameNode &node) {
    std::stable_sort(
        node.children.begin(), node.children.end(),
        [](const FlameNode &one, const FlameNode &other) { return one.bytes > other.bytes; });
    if (node.children.size() <= FlameNode::most_children) {
        return;
    }
    const size_t kept = FlameNode::most_children - 1;
    FlameNode rest;
    rest.name = fmt::format("{} others", node.children.size() - kept);
    for (size_t i = kept; i < node.children.size(); i++) {
        rest.bytes += node.children[i].bytes;
        rest.blocks += node.children[i].blocks;
    }
    node.children.resize(kept);
    node.children.push_back(std::move(rest));
}

// The sums from `begin` on that agree in the answers above `level`.
FlameNode flame_node_of(FlameSums::const_iterator &begin, FlameSums::const_iterator end,
                        size_t level, const std::vector<const Dimension *> &levels) {
    FlameNode node;
    const FlamePath path = begin->first;
    const auto belongs = [&](const FlamePath &other) {
        return std::equal(path.begin(), path.begin() + static_cast<ptrdiff_t>(level),
                          other.begin());
    };
    while (begin != end && belongs(begin->first)) {
        if (level == levels.size()) {
            node.bytes += begin->second.bytes;
            node.blocks += begin->second.blocks;
            ++begin;
            continue;
        }
        const uint32_t answer = begin->first[level];
        FlameNode child = flame_node_of(begin, end, level + 1, levels);
        child.name = levels[level]->labels[answer];
        node.bytes += child.bytes;
        node.blocks += child.blocks;
        node.children.push_back(std::move(child));
    }
    merge_small_nodes(node);
    return node;
}

} // namespace

FlameNode flame_of(const History &history, const std::vector<const Dimension *> &levels,
                   uint32_t step) {
    const FlameSums sums = flame_sums_of(history, levels, step);
    FlameNode root;
    if (!sums.empty()) {
        auto begin = sums.begin();
        root = flame_node_of(begin, sums.end(), 0, levels);
    }
    root.name = "all";
    return root;
}

} // namespace emm::tool
