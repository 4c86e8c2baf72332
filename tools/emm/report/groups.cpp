#include "report/groups.h"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <numeric>

namespace emm::tool {
namespace {

struct AnswerSums {
    std::vector<uint64_t> bytes, blocks;
};

AnswerSums answer_sums_at(const History &history, const Dimension &dimension, uint32_t step) {
    AnswerSums sums{std::vector<uint64_t>(dimension.labels.size()),
                    std::vector<uint64_t>(dimension.labels.size())};
    for (size_t i = 0; i < history.blocks.size(); i++) {
        if (is_live(history.blocks[i], step)) {
            sums.bytes[dimension.of[i]] += history.blocks[i].size;
            sums.blocks[dimension.of[i]]++;
        }
    }
    return sums;
}

std::vector<bool> answers_in_use(const Dimension &dimension) {
    std::vector<bool> used(dimension.labels.size());
    for (const uint32_t answer : dimension.of) {
        used[answer] = true;
    }
    return used;
}

// The answers that blocks have, those with the most bytes first.
std::vector<uint32_t> ranked_answers(const Dimension &dimension, const AnswerSums &sums) {
    const std::vector<bool> used = answers_in_use(dimension);
    std::vector<uint32_t> order;
    for (uint32_t answer = 0; answer < used.size(); answer++) {
        if (used[answer]) {
            order.push_back(answer);
        }
    }
    if (dimension.name != "lifetime") {
        std::stable_sort(order.begin(), order.end(), [&](uint32_t one, uint32_t other) {
            return sums.bytes[one] > sums.bytes[other];
        });
    }
    return order;
}

} // namespace

GroupSet groups_of(const History &history, const Dimension &dimension, uint32_t step) {
    const AnswerSums sums = answer_sums_at(history, dimension, step);
    const std::vector<uint32_t> order = ranked_answers(dimension, sums);
    const size_t count = std::min(order.size(), GroupSet::most);
    const bool has_others = order.size() > count;
    GroupSet groups{dimension.name, {}, {}, {}, {}, {}};
    std::vector<uint8_t> group_of(dimension.labels.size(), static_cast<uint8_t>(count));
    groups.bytes.resize(count + has_others);
    groups.blocks.resize(count + has_others);
    for (size_t i = 0; i < order.size(); i++) {
        const size_t group = std::min(i, count);
        group_of[order[i]] = static_cast<uint8_t>(group);
        groups.bytes[group] += sums.bytes[order[i]];
        groups.blocks[group] += sums.blocks[order[i]];
        if (i < count) {
            groups.labels.push_back(dimension.labels[order[i]]);
            groups.colors.push_back(dimension.name == "lifetime" ? order[i]
                                                                 : static_cast<uint32_t>(i));
        }
    }
    if (has_others) {
        groups.labels.emplace_back("others");
    }
    groups.of.reserve(dimension.of.size());
    for (const uint32_t answer : dimension.of) {
        groups.of.push_back(group_of[answer]);
    }
    return groups;
}

size_t leading_of(const std::vector<GroupSet> &sets) {
    constexpr double nearly_all = 0.9;
    size_t first_with_two = sets.size();
    for (size_t i = 0; i < sets.size() && sets[i].name != "lifetime"; i++) {
        const auto largest =
            static_cast<double>(*std::max_element(sets[i].bytes.begin(), sets[i].bytes.end()));
        const double all = std::accumulate(sets[i].bytes.begin(), sets[i].bytes.end(), 0.0);
        if (sets[i].labels.size() > 1 && largest < nearly_all * all) {
            return i;
        }
        first_with_two = sets[i].labels.size() > 1 ? std::min(first_with_two, i) : first_with_two;
    }
    if (first_with_two < sets.size()) {
        return first_with_two;
    }
    const auto lifetime = std::find_if(sets.begin(), sets.end(),
                                       [](const GroupSet &set) { return set.name == "lifetime"; });
    return static_cast<size_t>(lifetime - sets.begin());
}

std::vector<Stack> stacks_of(const History &history, const GroupSet &groups,
                             const std::vector<Bucket> &buckets) {
    std::vector<Stack> stacks;
    stacks.reserve(buckets.size());
    std::array<uint64_t, GroupSet::most + 1> live = {};
    for (const Bucket &bucket : buckets) {
        Stack &stack = stacks.emplace_back();
        for (uint32_t step = bucket.first_step; step <= bucket.last_step; step++) {
            const uint64_t size = history.block_of(step).size;
            uint64_t &bytes = live[groups.of[history.steps[step] / 2]];
            bytes = history.is_free(step) ? bytes - size : bytes + size;
            if (step == bucket.high_step) {
                stack.high = live;
            }
        }
        stack.end = live;
    }
    return stacks;
}

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
