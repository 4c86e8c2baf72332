#include "report/address_map.h"

#include <algorithm>
#include <cstddef>

namespace emm::tool {
namespace {

struct Span {
    uint64_t begin, end;
};

bool is_before(const Span &one, const Span &other) {
    return one.begin != other.begin ? one.begin < other.begin : one.end < other.end;
}

// Joins sorted spans that overlap, or lie at most `gap` apart.
std::vector<Span> joined_spans(const std::vector<Span> &spans, uint64_t gap) {
    std::vector<Span> result;
    for (const Span &span : spans) {
        if (!result.empty() &&
            (span.begin <= result.back().end || span.begin - result.back().end <= gap)) {
            result.back().end = std::max(result.back().end, span.end);
        } else {
            result.push_back(span);
        }
    }
    return result;
}

// A block beyond the end of the address space ends there.
Span span_of(uint64_t address, uint64_t size) {
    return {address, size > no_address - address ? no_address : address + size};
}

std::vector<Span> spans_of(const History &history, const std::vector<uint64_t> &addresses) {
    std::vector<Span> spans;
    spans.reserve(addresses.size());
    for (size_t i = 0; i < addresses.size(); i++) {
        if (addresses[i] != no_address) {
            spans.push_back(span_of(addresses[i], history.blocks[i].size));
        }
    }
    std::sort(spans.begin(), spans.end(), is_before);
    return joined_spans(spans, 0);
}

uint64_t total_of(const std::vector<Span> &spans) {
    uint64_t bytes = 0;
    for (const Span &span : spans) {
        bytes += span.end - span.begin;
    }
    return bytes;
}

// The live bytes of each cell, in all and by group.
class Cells {
public:
    Cells(const AddressRow &row, size_t groups)
        : row_(row), groups_(groups), live_(row.cells()), by_group_(row.cells() * groups) {}

    void change(uint64_t address, uint64_t size, uint8_t group, bool is_free) {
        const Span span = span_of(address, size);
        uint64_t at = row_.offset_of(address);
        const uint64_t end = at + (span.end - span.begin);
        while (at < end) {
            const uint64_t cell = at / row_.cell_bytes();
            const uint64_t part = std::min(end - at, row_.cell_bytes() - at % row_.cell_bytes());
            live_[cell] += is_free ? -part : part;
            by_group_[cell * groups_ + group] += is_free ? -part : part;
            at += part;
        }
    }

    std::vector<uint8_t> bytes() const {
        std::vector<uint8_t> bytes(live_.size());
        for (size_t cell = 0; cell < live_.size(); cell++) {
            if (live_[cell] != 0) {
                const double share =
                    static_cast<double>(live_[cell]) / static_cast<double>(row_.cell_bytes());
                const int fill = std::clamp(static_cast<int>(share * 15), 1, 15);
                bytes[cell] = static_cast<uint8_t>(fill << 4 | leading_group(cell));
            }
        }
        return bytes;
    }

private:
    int leading_group(size_t cell) const {
        const auto begin = by_group_.begin() + static_cast<ptrdiff_t>(cell * groups_);
        return static_cast<int>(std::max_element(begin, begin + static_cast<ptrdiff_t>(groups_)) -
                                begin);
    }

    const AddressRow &row_;
    const size_t groups_;
    std::vector<uint64_t> live_, by_group_;
};

} // namespace

std::vector<uint64_t> addresses_of(const History &history) {
    std::vector<uint64_t> addresses;
    addresses.reserve(history.blocks.size());
    for (const Allocation &block : history.blocks) {
        addresses.push_back(block.address);
    }
    return addresses;
}

AddressRow::AddressRow(const History &history, const std::vector<uint64_t> &addresses,
                       size_t most_cells) {
    constexpr uint64_t widest_part =
        16; // a gap of more than a sixteenth of the used range is left out
    const std::vector<Span> used = spans_of(history, addresses);
    for (const Span &span : joined_spans(used, total_of(used) / widest_part)) {
        ranges_.push_back({span.begin, span.end, bytes_});
        bytes_ += span.end - span.begin;
    }
    cell_bytes_ = std::max<uint64_t>(1, bytes_ / most_cells + (bytes_ % most_cells != 0));
    cells_ = bytes_ / cell_bytes_ + (bytes_ % cell_bytes_ != 0);
}

uint64_t AddressRow::address_of(size_t cell) const {
    const uint64_t offset = cell * cell_bytes_;
    const auto above =
        std::upper_bound(ranges_.begin(), ranges_.end(), offset,
                         [](uint64_t at, const Range &range) { return at < range.offset; });
    const Range &range = *(above - 1);
    return range.begin + (offset - range.offset);
}

uint64_t AddressRow::offset_of(uint64_t address) const {
    const auto above =
        std::upper_bound(ranges_.begin(), ranges_.end(), address,
                         [](uint64_t at, const Range &range) { return at < range.begin; });
    const Range &range = *(above - 1);
    return range.offset + (address - range.begin);
}

std::vector<size_t> AddressRow::cuts() const {
    std::vector<size_t> cells;
    for (size_t i = 1; i < ranges_.size(); i++) {
        const size_t cell = ranges_[i].offset / cell_bytes_;
        if (cells.empty() || cells.back() != cell) {
            cells.push_back(cell);
        }
    }
    return cells;
}

std::vector<MapMoment> map_moments(const History &history, const std::vector<uint64_t> &addresses,
                                   const GroupSet &groups, const AddressRow &row,
                                   const std::vector<uint32_t> &steps) {
    Cells cells(row, groups.labels.size());
    std::vector<MapMoment> moments;
    uint64_t live = 0;
    uint32_t step = 0;
    for (const uint32_t wanted : steps) {
        for (; step <= wanted; step++) {
            const uint32_t number = history.steps[step] / 2;
            const uint64_t size = history.blocks[number].size;
            live = history.is_free(step) ? live - size : live + size;
            if (addresses[number] != no_address) {
                cells.change(addresses[number], size, groups.of[number], history.is_free(step));
            }
        }
        moments.push_back({wanted, history.time_of(wanted), live, cells.bytes()});
    }
    return moments;
}

std::vector<uint32_t> moments_of(const History &history, size_t most,
                                 const std::vector<uint32_t> &chosen) {
    std::vector<uint32_t> steps = chosen;
    const size_t last = history.steps.size() - 1;
    for (size_t i = 0; i < most; i++) {
        steps.push_back(static_cast<uint32_t>(most == 1 ? last : last * i / (most - 1)));
    }
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    return steps;
}

Gaps gaps_at(const History &history, const std::vector<uint64_t> &addresses, const AddressRow &row,
             uint32_t step) {
    std::vector<Span> live;
    for (size_t i = 0; i < addresses.size(); i++) {
        if (addresses[i] != no_address && is_live(history.blocks[i], step)) {
            const uint64_t offset = row.offset_of(addresses[i]);
            const Span span = span_of(addresses[i], history.blocks[i].size);
            live.push_back({offset, offset + (span.end - span.begin)});
        }
    }
    std::sort(live.begin(), live.end(), is_before);
    const std::vector<Span> blocks = joined_spans(live, 0);
    Gaps gaps;
    for (size_t i = 1; i < blocks.size(); i++) {
        const uint64_t gap = blocks[i].begin - blocks[i - 1].end;
        gaps.count++;
        gaps.bytes += gap;
        gaps.largest = std::max(gaps.largest, gap);
    }
    return gaps;
}

} // namespace emm::tool
