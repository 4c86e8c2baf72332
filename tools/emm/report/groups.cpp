#include "report/groups.h"

#include <algorithm>
#include <cstddef>
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

// The blocks' answers, those with the most bytes first.
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
    GroupSet groups{dimension.name, {}, {}, {}, {}};
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

} // namespace emm::tool
