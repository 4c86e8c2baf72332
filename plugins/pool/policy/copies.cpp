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

} // namespace emm::pool
