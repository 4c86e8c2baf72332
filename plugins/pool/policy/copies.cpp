#include "copies.h"

#include <algorithm>

namespace emm::pool {

std::vector<Range> common_ranges(const std::vector<Range> &one, const std::vector<Range> &other) {
    std::vector<Range> common;
    auto a = one.begin(), b = other.begin();
    while (a != one.end() && b != other.end()) {
        const Range both{std::max(a->begin, b->begin), std::min(a->end, b->end)};
        if (both.begin < both.end) {
            common.push_back(both);
        }
        a->end < b->end ? ++a : ++b;
    }
    return common;
}

std::vector<Range> ranges_to_copy(const std::vector<Range> &used,
                                  const std::vector<Range> &places) {
    std::vector<Range> joined;
    for (const Range &place : places) {
        if (!joined.empty() && joined.back().end == place.begin) {
            joined.back().end = place.end;
        } else {
            joined.push_back(place);
        }
    }
    std::vector<Range> copied;
    auto place = joined.begin();
    for (const Range &range : common_ranges(used, joined)) {
        while (place->end < range.end) {
            ++place;
        }
        const bool same_place = !copied.empty() && copied.back().begin >= place->begin;
        if (same_place && range.begin - copied.back().end < largest_gap) {
            copied.back().end = range.end;
        } else {
            copied.push_back(range);
        }
    }
    return copied;
}

std::vector<Range> with_whole_blocks(std::vector<Range> places, const std::vector<Range> &used) {
    auto block = used.begin();
    std::vector<Range> whole;
    for (Range place : places) {
        while (block != used.end() && block->end <= place.begin) {
            ++block;
        }
        for (; block != used.end() && block->begin < place.end; ++block) {
            place.begin = std::min(place.begin, block->begin);
            place.end = std::max(place.end, block->end);
        }
        if (!whole.empty() && place.begin <= whole.back().end) {
            whole.back().end = std::max(whole.back().end, place.end);
        } else {
            whole.push_back(place);
        }
    }
    return whole;
}

} // namespace emm::pool
