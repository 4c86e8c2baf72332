#include "segments.h"

#include "backing/zones.h"

#include <algorithm>

namespace emm::pool {

Block *Segments::take(StreamPool &pool, uint64_t bytes) {
    heap_.reserve_record();
    const Zone zone = zone_for(options_, bytes);
    if (zone == Zone::dedicated) {
        return heap_.take_dedicated(pool, bytes);
    }
    Block *block = heap_.take(pool, bytes, zone, cut_limit_for(bytes));
    const bool crosses = zone == Zone::small && holdings_.reserved() <= options_.initial;
    return block || !crosses ? block : heap_.take(pool, bytes, Zone::large);
}

SegmentUse Segments::use(uint64_t bytes) const {
    return {holdings_.claimed(), heap_.bytes_in(Zone::small), holdings_.most_reserved(),
            options_.initial,    holdings_.taken(),           holdings_.most_with(bytes)};
}

uint64_t Segments::cut_limit_for(uint64_t bytes) const {
    return cut_limit(bytes, growth_for(bytes), !moves_.returns_are_deferred(), use(bytes));
}

uint64_t Segments::growth_for(uint64_t bytes) const {
    return segment_bytes(bytes, zone_for(options_, bytes), options_.segment, use(bytes)) +
           (ragged_ ? segment_granule : 0);
}

uint64_t Segments::missing_for(uint64_t bytes) const {
    return bytes_to_exchange(growth_for(bytes), use(bytes));
}

bool Segments::grows_first(uint64_t bytes) const {
    return zone_for(options_, bytes) == Zone::small &&
           small_grows_first(growth_for(bytes), use(bytes));
}

Block *Segments::grow(Lock &lock, StreamPool &pool, const Caller &, uint64_t bytes,
                      CUresult &result) {
    const Zone zone = zone_for(options_, bytes);
    Block *block = await_segments(lock, pool, bytes);
    if (block) {
        return block;
    }
    exchange_idle(lock, bytes);
    if (zone == Zone::large && missing_for(bytes) > 0) {
        heap_.reserve_record(); // a block that cannot be exchanged for a segment is cut after all
        block = heap_.take(pool, bytes, zone);
    }
    for (int attempt = 0; attempt < 2 && !block; attempt++) {
        const uint64_t exact = round_up(bytes, segment_granule);
        result = add(lock, growth_for(bytes), zone);
        if (is_exhausted(result) && growth_for(bytes) != exact) {
            result = add(lock, exact, zone);
        }
        if (result != CUDA_SUCCESS) {
            return nullptr;
        }
        // NULL if the segment's ends were ragged: try once more, and then let idle memory make
        // room.
        block = take_new(pool, bytes, zone);
        result = block ? CUDA_SUCCESS : no_memory_of_pool;
    }
    return block;
}

Block *Segments::take_new(StreamPool &pool, uint64_t bytes, Zone zone) {
    heap_.reserve_record();
    return zone == Zone::dedicated ? take(pool, bytes) : heap_.take(pool, bytes, zone);
}

bool Segments::has_unfinished() const {
    const Segment *segment = heap_.first_whole();
    while (segment && !(segment->first->dirty() && segment->first->pool->order == Order::stream)) {
        segment = heap_.next_whole(*segment);
    }
    return segment;
}

// Waits only while streams may complete work on idle segments, so that more segments can be
// exchanged.
Block *Segments::await_segments(Lock &lock, StreamPool &pool, uint64_t bytes) {
    const bool on_stream = pool.order == Order::stream;
    if (grows_first(bytes) || (on_stream && !has_unfinished())) {
        return nullptr;
    }
    return await_idle(lock, pool, bytes, [&] {
        return on_stream ? missing_for(bytes) <= exchangeable()
                         : !holdings_.awaits_pending(pool, bytes);
    });
}

// If the pool would otherwise hold too much, idle segments that are too small for the request go
// back.
void Segments::exchange_idle(Lock &lock, uint64_t bytes) {
    const uint64_t growth = growth_for(bytes);
    while (!moves_.returns_are_deferred()) {
        const uint64_t missing = bytes_to_exchange(growth, use(bytes));
        Segment *segment = missing > 0 ? idle_for(missing, zone_for(options_, bytes)) : nullptr;
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

// The segment that was idle for the longest. For the small zone, which grows by little: the
// smallest that suffices, else the largest.
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

Block *Segments::reclaim(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes,
                         bool again, CUresult &result) {
    const bool more = return_refused(lock) || again;
    Block *block = more ? grow(lock, pool, caller, bytes, result) : nullptr;
    while (!block && !moves_.returns_are_deferred() && heap_.first_whole() &&
           is_exhausted(result)) {
        release(lock, *heap_.first_whole());
        block = grow(lock, pool, caller, bytes, result);
    }
    return block;
}

uint64_t Segments::release_idle(Lock &lock, uint64_t keep, bool complete_only) {
    const uint64_t before = holdings_.reserved();
    return_refused(lock);
    Segment *segment = heap_.first_whole();
    while (segment && !moves_.returns_are_deferred() && holdings_.cached() > keep) {
        if (complete_only && segment->first->dirty()) {
            segment = heap_.next_whole(*segment);
            continue;
        }
        release(lock, *segment);
        segment = heap_.first_whole();
    }
    return before - std::min(before, holdings_.reserved());
}

CUresult Segments::take_initial(Lock &lock, uint64_t bytes) {
    return add(lock, bytes, Zone::large);
}

} // namespace emm::pool
