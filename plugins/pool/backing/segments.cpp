#include "segments.h"

#include "backing/zones.h"

#include <algorithm>

namespace emm::pool {
namespace {

constexpr uint64_t largest_share = 32 << 20;
constexpr uint64_t huge = 64 << 20;

} // namespace

Segments::Segments(const Parts &parts)
    : context_(parts.context), mutex_(parts.mutex), options_(parts.options), heap_(parts.heap),
      order_(parts.order), caches_(parts.caches), holdings_(parts.holdings), moves_(parts.moves) {
    if (options_.initial == 0) { // only then do small requests never ask the large zone
        heap_.set_remnants_apart();
    }
}

Block *Segments::take(StreamPool &pool, uint64_t bytes) {
    heap_.reserve_record();
    const Zone zone = zone_for(options_, bytes);
    if (zone == Zone::dedicated) {
        return heap_.take_dedicated(pool, bytes);
    }
    Block *block = heap_.take(pool, bytes, zone, largest_to_cut(bytes));
    const bool crosses = zone == Zone::small && holdings_.reserved() <= options_.initial;
    return block || !crosses ? block : heap_.take(pool, bytes, Zone::large);
}

// A small piece of it would keep an idle segment from serving what it was made for. A huge one is
// cut for something much smaller only while the pool does not hold much more than it needs.
uint64_t Segments::largest_to_cut(uint64_t bytes) const {
    const uint64_t claimed = holdings_.claimed();
    const uint64_t most = holdings_.most_with(bytes);
    if (claimed + growth_for(bytes) <= most + most / idle_part) {
        return 16 * bytes;
    }
    const uint64_t needed = std::max(most, options_.initial);
    const bool exact = bytes >= huge && bytes >= claimed / 16 && !moves_.are_deferred() &&
                       claimed > needed + needed / 8;
    return exact ? bytes + bytes / 4 : UINT64_MAX;
}

// Requests share segments that are a fraction of what there is, up to 32 MiB: larger ones
// overshoot, smaller ones leave gaps that cannot become one. Larger requests get their measure.
uint64_t Segments::growth_for(uint64_t bytes) const {
    const Zone zone = zone_for(options_, bytes);
    const uint64_t part =
        zone == Zone::small ? heap_.bytes_in(zone) / 32 : holdings_.claimed() / 16;
    const uint64_t share = std::min(part, largest_share);
    const uint64_t wanted = options_.segment != 0 ? options_.segment : share;
    const uint64_t least = zone == Zone::dedicated ? bytes : wanted;
    return round_up(std::max({bytes, least, segment_granule}), segment_granule) +
           (ragged_ ? segment_granule : 0);
}

// A small request does so if the small zone is a small part of all, or if that much was held before
// and much of it is not needed now.
bool Segments::grows_first(uint64_t bytes) const {
    if (zone_for(options_, bytes) != Zone::small) {
        return false;
    }
    const uint64_t growth = growth_for(bytes);
    const uint64_t claimed = holdings_.claimed();
    return heap_.bytes_in(Zone::small) + growth <= claimed / idle_part ||
           (claimed + growth <= holdings_.peak_reserved() &&
            holdings_.taken() <= holdings_.most_with(bytes) / 4 * 3);
}

Block *Segments::grow(Lock &lock, StreamPool &pool, uint64_t bytes, CUresult &result) {
    const Zone zone = zone_for(options_, bytes);
    Block *block = await_exchange(lock, pool, bytes);
    if (block) {
        return block;
    }
    exchange_idle(lock, bytes);
    const uint64_t held = holdings_.claimed() + growth_for(bytes);
    if (zone == Zone::large && held > holdings_.ceiling(bytes)) {
        heap_.reserve_record(); // what cannot be exchanged is cut after all
        block = heap_.take(pool, bytes, zone);
    }
    for (int attempt = 0; attempt < 2 && !block; attempt++) {
        const uint64_t exact = round_up(bytes, segment_granule);
        result = add(lock, growth_for(bytes), zone);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && growth_for(bytes) != exact) {
            result = add(lock, exact, zone);
        }
        if (result != CUDA_SUCCESS) {
            return nullptr;
        }
        block = take_new(pool, bytes, zone); // fails if the segment's ends were ragged: once more
    }
    return block;
}

Block *Segments::take_new(StreamPool &pool, uint64_t bytes, Zone zone) {
    heap_.reserve_record();
    return zone == Zone::dedicated ? take(pool, bytes) : heap_.take(pool, bytes, zone);
}

// Waits a while for idle segments whose work is not complete, if those that are complete are not
// enough to exchange. A block, if that alone has made one.
Block *Segments::await_exchange(Lock &lock, StreamPool &pool, uint64_t bytes) {
    Block *block = nullptr;
    const auto waits = [](const Segment &segment) {
        return segment.first->dirty() && segment.first->pool->order == Order::stream;
    };
    const auto enough = [&] {
        return holdings_.claimed() + growth_for(bytes) <= holdings_.ceiling(bytes) + exchangeable();
    };
    const Segment *segment = heap_.first_whole();
    while (segment && !waits(*segment)) {
        segment = heap_.next_whole(*segment);
    }
    if (segment && !moves_.are_deferred() && !grows_first(bytes) && !enough()) {
        order_.wait_bounded(lock, pool, [&] {
            block = take(pool, bytes);
            return block || enough();
        });
    }
    return block;
}

// A segment that is idle and too small for what is asked goes back if the pool would else hold
// more than ever: that is what keeps reserved memory close to live memory, and it ends with the
// warm-up.
void Segments::exchange_idle(Lock &lock, uint64_t bytes) {
    const uint64_t growth = growth_for(bytes);
    while (!moves_.are_deferred() && holdings_.claimed() + growth > holdings_.ceiling(bytes)) {
        const uint64_t missing = holdings_.claimed() + growth - holdings_.ceiling(bytes);
        Segment *segment = idle_for(missing, zone_for(options_, bytes));
        if (!segment) {
            return;
        }
        release(lock, *segment);
    }
}

uint64_t Segments::exchangeable() const {
    uint64_t bytes = 0;
    for (Segment *s = heap_.first_whole(); s; s = heap_.next_whole(*s)) {
        bytes += s->first->dirty() ? 0 : s->driver_bytes;
    }
    const uint64_t reserved = holdings_.reserved();
    return std::min(bytes, reserved - std::min(reserved, options_.initial));
}

// The one that was idle for the longest; but for the little that the small zone grows by, the
// smallest that is enough, else the largest.
Segment *Segments::idle_for(uint64_t missing, Zone zone) const {
    Segment *chosen = nullptr;
    for (Segment *s = heap_.first_whole(); s; s = heap_.next_whole(*s)) {
        if (s->first->dirty() || holdings_.reserved() - s->driver_bytes < options_.initial) {
            continue;
        }
        if (zone != Zone::small) {
            return s;
        }
        const bool enough = s->driver_bytes >= missing;
        const bool was_enough = chosen && chosen->driver_bytes >= missing;
        const bool smaller = chosen && s->driver_bytes < chosen->driver_bytes;
        const bool better = enough == was_enough ? enough == smaller : enough;
        chosen = !chosen || better ? s : chosen;
    }
    return chosen;
}

Block *Segments::reclaim(Lock &lock, StreamPool &pool, uint64_t bytes, bool again,
                         CUresult &result) {
    Block *block = again ? grow(lock, pool, bytes, result) : nullptr;
    while (!block && !moves_.are_deferred() && heap_.first_whole() &&
           result == CUDA_ERROR_OUT_OF_MEMORY) {
        release(lock, *heap_.first_whole());
        block = grow(lock, pool, bytes, result);
    }
    return block;
}

uint64_t Segments::release_idle(Lock &lock, uint64_t keep, bool complete_only) {
    uint64_t released = 0;
    Segment *segment = heap_.first_whole();
    while (segment && !moves_.are_deferred() && holdings_.cached() > keep) {
        if (complete_only && segment->first->dirty()) {
            segment = heap_.next_whole(*segment);
            continue;
        }
        released += release(lock, *segment);
        segment = heap_.first_whole();
    }
    return released;
}

CUresult Segments::take_initial(Lock &lock, uint64_t bytes) {
    return add(lock, bytes, Zone::large);
}

} // namespace emm::pool
