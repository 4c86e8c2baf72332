#include "report/flame.h"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>
#include <functional>
#include <map>

namespace emm::tool {
namespace {

struct FlameSum {
    uint64_t bytes = 0, blocks = 0;
};
using FlamePath = std::vector<uint32_t>; // of labels, one for each level
using FlameSums = std::map<FlamePath, FlameSum>;

// Where each block belongs: numbers of labels, as many as there are levels above its leaf.
struct FlamePaths {
    std::vector<std::string> labels;
    std::function<void(size_t block, FlamePath &ret_path)> path_of;
};

FlameSums flame_sums_of(const History &history, const FlamePaths &paths, uint32_t step) {
    FlameSums sums;
    FlamePath path;
    for (size_t i = 0; i < history.blocks.size(); i++) {
        if (is_live(history.blocks[i], step)) {
            path.clear();
            paths.path_of(i, path);
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

// The sums from `begin` on that agree in the labels above `level`.
FlameNode flame_node_of(FlameSums::const_iterator &begin, FlameSums::const_iterator end,
                        size_t level, const std::vector<std::string> &labels) {
    FlameNode node;
    const FlamePath path = begin->first;
    const auto belongs = [&](const FlamePath &other) {
        return other.size() >= level &&
               std::equal(path.begin(), path.begin() + static_cast<ptrdiff_t>(level),
                          other.begin());
    };
    while (begin != end && belongs(begin->first)) {
        if (level == begin->first.size()) {
            node.bytes += begin->second.bytes;
            node.blocks += begin->second.blocks;
            ++begin;
            continue;
        }
        const uint32_t label = begin->first[level];
        FlameNode child = flame_node_of(begin, end, level + 1, labels);
        child.name = labels[label];
        node.bytes += child.bytes;
        node.blocks += child.blocks;
        node.children.push_back(std::move(child));
    }
    merge_small_nodes(node);
    return node;
}

FlameNode flame_tree(const History &history, const FlamePaths &paths, uint32_t step) {
    const FlameSums sums = flame_sums_of(history, paths, step);
    FlameNode root;
    if (!sums.empty()) {
        auto begin = sums.begin();
        root = flame_node_of(begin, sums.end(), 0, paths.labels);
    }
    root.name = "all";
    return root;
}

} // namespace

FlameNode flame_of(const History &history, const std::vector<const Dimension *> &levels,
                   uint32_t step) {
    FlamePaths paths;
    std::vector<uint32_t> first;
    for (const Dimension *const level : levels) {
        first.push_back(static_cast<uint32_t>(paths.labels.size()));
        paths.labels.insert(paths.labels.end(), level->labels.begin(), level->labels.end());
    }
    paths.path_of = [&](size_t block, FlamePath &ret_path) {
        for (size_t level = 0; level < levels.size(); level++) {
            ret_path.push_back(first[level] + levels[level]->of[block]);
        }
    };
    return flame_tree(history, paths, step);
}

FlameNode flame_of_calls(const History &history, const CallPaths &calls, const Dimension &sizes,
                         uint32_t step) {
    FlamePaths paths{calls.labels, {}};
    const auto first_size = static_cast<uint32_t>(paths.labels.size());
    paths.labels.insert(paths.labels.end(), sizes.labels.begin(), sizes.labels.end());
    paths.path_of = [&](size_t block, FlamePath &ret_path) {
        const std::vector<uint32_t> &path = calls.of[history.blocks[block].site];
        ret_path.assign(path.begin(), path.end());
        ret_path.push_back(first_size + sizes.of[block]);
    };
    return flame_tree(history, paths, step);
}

} // namespace emm::tool
