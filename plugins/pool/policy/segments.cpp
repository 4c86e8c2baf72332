#include "segments.h"

#include <algorithm>

namespace emm::pool {
namespace {

// The fraction of all memory that may lie idle to save driver calls.
constexpr uint64_t idle_part = 64;
constexpr uint64_t part_of_small = 32, part_of_all = 16;
constexpr uint64_t largest_share = 32 << 20;
constexpr uint64_t times_cut = 16;
constexpr uint64_t huge = 64 << 20;

uint64_t with_idle_part(uint64_t bytes) {
    return bytes + bytes / idle_part;
}

bool holds_too_much(const SegmentUse &use) {
    const uint64_t needed = std::max(use.most, use.initial);
    return use.claimed > needed + needed / 8;
}

} // namespace

uint64_t segment_bytes(uint64_t bytes, Zone zone, uint64_t least, const SegmentUse &use) {
    const uint64_t part =
        zone == Zone::small ? use.small / part_of_small : use.claimed / part_of_all;
    const uint64_t share = least != 0 ? least : std::min(part, largest_share);
    const uint64_t wanted = zone == Zone::dedicated ? bytes : share;
    return round_up(std::max({bytes, wanted, segment_granule}), segment_granule);
}

uint64_t bytes_to_exchange(uint64_t growth, const SegmentUse &use) {
    const uint64_t ceiling = std::max(use.peak, with_idle_part(use.most));
    const uint64_t held = use.claimed + growth;
    return held > ceiling ? held - ceiling : 0;
}

uint64_t cut_limit(uint64_t bytes, uint64_t growth, bool may_exchange, const SegmentUse &use) {
    if (use.claimed + growth <= with_idle_part(use.most)) {
        return times_cut * bytes;
    }
    const bool choosy =
        may_exchange && bytes >= huge && bytes >= use.claimed / part_of_all && holds_too_much(use);
    return choosy ? bytes + bytes / 4 : UINT64_MAX;
}

bool small_grows_first(uint64_t growth, const SegmentUse &use) {
    return use.small + growth <= use.claimed / idle_part ||
           (use.claimed + growth <= use.peak && use.taken <= use.most / 4 * 3);
}

} // namespace emm::pool
