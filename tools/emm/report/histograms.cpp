#include "report/histograms.h"

#include "report/dimension.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace emm::tool {
namespace {

void count_block(Bar &bar, const Allocation &block, uint32_t peak_step) {
    bar.blocks++;
    bar.bytes += block.size;
    bar.peak_bytes += is_live(block, peak_step) ? block.size : 0;
}

bool is_dropped(const Allocation &block) {
    return block.dropped != Drop::none;
}

template <class Counts> Bar bar_of(const History &history, uint32_t peak_step, Counts counts) {
    Bar bar;
    for (const Allocation &block : history.blocks) {
        if (counts(block)) {
            count_block(bar, block, peak_step);
        }
    }
    return bar;
}

std::vector<Bar> without_empty_ends(std::vector<Bar> bars) {
    const auto has_blocks = [](const Bar &bar) { return bar.blocks != 0; };
    const auto first = std::find_if(bars.begin(), bars.end(), has_blocks);
    const auto last = std::find_if(bars.rbegin(), bars.rend(), has_blocks).base();
    return first < last ? std::vector<Bar>(first, last) : std::vector<Bar>();
}

// 0, then thirds and wholes of powers of ten, from a microsecond to a year.
std::vector<Bar> lifetime_bars() {
    constexpr uint64_t microsecond = 1000, year = uint64_t(32'000'000) * 1'000'000'000;
    std::vector<Bar> bars = {{}};
    for (uint64_t from = microsecond; from < year; from *= 10) {
        bars.push_back({from, 0, 0, 0});
        bars.push_back({from * 3, 0, 0, 0});
    }
    return bars;
}

} // namespace

std::vector<Bar> lifetimes_of(const History &history, uint32_t peak_step) {
    std::vector<Bar> bars = lifetime_bars();
    for (const Allocation &block : history.blocks) {
        if (block.end != never && !is_dropped(block)) {
            const auto above =
                std::upper_bound(bars.begin(), bars.end(), block.end - block.begin,
                                 [](uint64_t lived, const Bar &bar) { return lived < bar.from; });
            count_block(*(above - 1), block, peak_step);
        }
    }
    return without_empty_ends(std::move(bars));
}

Bar unfreed_of(const History &history, uint32_t peak_step) {
    return bar_of(history, peak_step, [](const auto &block) { return block.end == never; });
}

Bar dropped_of(const History &history, uint32_t peak_step) {
    return bar_of(history, peak_step, is_dropped);
}

std::vector<Bar> sizes_of(const History &history, uint32_t peak_step) {
    std::vector<Bar> bars(64);
    for (size_t power = 0; power < bars.size(); power++) {
        bars[power].from = uint64_t(1) << power;
    }
    for (const Allocation &block : history.blocks) {
        count_block(bars[static_cast<size_t>(std::bit_width(block.size | 1) - 1)], block,
                    peak_step);
    }
    return without_empty_ends(std::move(bars));
}

std::vector<Bar> leading_sizes_of(const History &history, uint32_t peak_step, size_t most) {
    std::unordered_map<uint64_t, Bar> exact;
    for (const Allocation &block : history.blocks) {
        if (is_live(block, peak_step)) {
            exact[block.size].from = block.size;
        }
    }
    for (const Allocation &block : history.blocks) {
        const auto found = exact.find(block.size);
        if (found != exact.end()) {
            count_block(found->second, block, peak_step);
        }
    }
    std::vector<Bar> bars;
    for (const auto &[size, bar] : exact) {
        bars.push_back(bar);
    }
    std::sort(bars.begin(), bars.end(), [](const Bar &one, const Bar &other) {
        return one.peak_bytes != other.peak_bytes ? one.peak_bytes > other.peak_bytes
                                                  : one.from > other.from;
    });
    bars.resize(std::min(bars.size(), most));
    return bars;
}

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
        left.bytes += block.last_step == no_step ? block.size : 0;
        left.blocks += block.last_step == no_step;
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
