#include "report/buckets.h"

#include <algorithm>

namespace emm::tool {

Peak peak_of(const History &history) {
    Peak peak;
    uint64_t bytes = 0, blocks = 0;
    for (size_t step = 0; step < history.steps.size(); step++) {
        const uint64_t size = history.block_of(step).size;
        const bool is_free = history.is_free(step);
        bytes = is_free ? bytes - size : bytes + size;
        blocks = is_free ? blocks - 1 : blocks + 1;
        if (bytes > peak.bytes) {
            peak = {bytes, blocks, static_cast<uint32_t>(step), history.time_of(step)};
        }
    }
    return peak;
}

Left left_of(const History &history) {
    Left left;
    for (const Allocation &block : history.blocks) {
        left.bytes += block.end == never ? block.size : 0;
        left.blocks += block.end == never;
    }
    return left;
}

std::vector<Bucket> buckets_of(const History &history, size_t most) {
    const size_t steps = history.steps.size();
    if (steps == 0) {
        return {};
    }
    const uint64_t widest = (steps - 1) / most + 1;
    const uint64_t longest = (history.time_of(steps - 1) - history.time_of(0)) / most + 1;
    std::vector<Bucket> buckets;
    uint64_t live = 0;
    for (uint32_t step = 0; step < steps; step++) {
        const uint64_t time = history.time_of(step);
        const uint64_t size = history.block_of(step).size;
        live = history.is_free(step) ? live - size : live + size;
        if (buckets.empty() || step - buckets.back().first_step >= widest ||
            time - buckets.back().first_time >= longest) {
            buckets.push_back({step, step, time, time, live, live, live, step});
        }
        Bucket &bucket = buckets.back();
        bucket.last_step = step;
        bucket.last_time = time;
        bucket.low = std::min(bucket.low, live);
        bucket.high_step = live > bucket.high ? step : bucket.high_step;
        bucket.high = std::max(bucket.high, live);
        bucket.end = live;
    }
    return buckets;
}

std::vector<Extent> extents_of(const std::vector<uint64_t> &series,
                               const std::vector<Bucket> &buckets) {
    std::vector<Extent> extents;
    for (const Bucket &bucket : buckets) {
        const auto begin = series.begin() + bucket.first_step;
        const auto end = series.begin() + bucket.last_step + 1;
        const auto [low, high] = std::minmax_element(begin, end);
        extents.push_back({*low, *high, *(end - 1)});
    }
    return extents;
}

} // namespace emm::tool
