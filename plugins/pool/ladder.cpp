// What happens when nothing is at hand. Every rung costs more than the one before it:
//
//   reuse            ask which freed memory is complete by now; record events where none tells
//   wait_for_stream  let the asking stream wait, on the device, for the stream that freed a block
//   linger           wait a while for idle memory, if the pool would else hold more than ever
//   grow             ask the driver for a segment
//   squeeze          return idle segments and grow again; then wait on the CPU for all work
//
// Waiting comes before growth, as in cuMemAllocAsync and RMM: a pool that grows first ends with
// the sum of all streams' peaks, for good. Memory known to be complete comes before both, so a
// stream waits only if everything that is free is really in use.
#include "manager.h"

#include <algorithm>

namespace emm::pool {
namespace {

constexpr int candidates_tried = 8;
constexpr uint64_t largest_share = 32 << 20;
constexpr uint64_t huge = 64 << 20;

bool has_event(const Block &block) {
    return StreamOrder::has_event_for(owner_of(block), block.tag);
}

bool says_exhausted(CUresult result) {
    return result == CUDA_ERROR_OUT_OF_MEMORY;
}

} // namespace

emm_status Manager::acquire(const Caller &caller, StreamPool &pool, uint64_t bytes,
                            Block *&ret_block) {
    {
        const Lock lock(mutex_);
        order_.collect_graphs();
        caches_.drain_own();
        ret_block = served_.serves() ? take_block(pool, bytes) : nullptr;
        if (ret_block) {
            return EMM_OK;
        }
    }
    const Current current(driver_, context_, context_id_);
    if (current.result() != CUDA_SUCCESS) {
        return served_.failed(current.result(), "cuCtxPushCurrent");
    }
    CUresult result = CUDA_SUCCESS;
    Block *block = nullptr;
    {
        Lock lock(mutex_);
        const bool first = caller.kind == StreamKind::none ? grows_unasked(bytes) : false;
        block = first || grows_first(bytes) ? grow(lock, pool, bytes, result) : nullptr;
        block = block ? block : reuse(lock, caller, pool, bytes);
        block = block ? block : wait_for_stream(lock, caller, pool, bytes);
        if (!block && caches_.drain_all()) {
            block = reuse(lock, caller, pool, bytes);
        }
        block = block ? block : grow(lock, pool, bytes, result);
        if (!block && says_exhausted(result)) {
            block = squeeze(lock, caller, pool, bytes, result);
        }
    }
    if (block) {
        ret_block = block;
        return EMM_OK;
    }
    if (!served_.serves()) {
        return served_.failed(served_.lost(), "a driver call");
    }
    return says_exhausted(result)
               ? exhausted(bytes, result)
               : served_.failed(result, paged_ ? "cuMemCreate or cuMemMap" : "cuMemAlloc");
}

Block *Manager::take_block(StreamPool &pool, uint64_t bytes) {
    heap_.reserve_record();
    const Zone zone = zone_for(bytes);
    if (zone == Zone::dedicated) {
        return heap_.take_dedicated(pool, bytes);
    }
    Block *block = heap_.take(pool, bytes, zone, largest_to_cut(bytes));
    if (block || zone == Zone::large) {
        return block;
    }
    if (holdings_.reserved() <= options_.initial) { // which is for every size
        return heap_.take(pool, bytes, Zone::large);
    }
    // No page can be had from a piece that is smaller.
    return paged_ ? heap_.take(pool, bytes, Zone::large, segment_granule - 1) : nullptr;
}

// A small piece of it would keep an idle segment from serving what it was made for. A huge one is
// cut for something much smaller only while the pool does not hold much more than it needs.
uint64_t Manager::largest_to_cut(uint64_t bytes) const {
    if (paged_) {
        return UINT64_MAX;
    }
    const uint64_t most = holdings_.most_with(bytes);
    if (holdings_.claimed() + growth_for(bytes) <= most + most / idle_part) {
        return 16 * bytes;
    }
    const uint64_t needed = std::max(most, options_.initial);
    const bool exact = bytes >= huge && bytes >= holdings_.claimed() / 16 &&
                       !moves_.are_deferred() && holdings_.claimed() > needed + needed / 8;
    return exact ? bytes + bytes / 4 : UINT64_MAX;
}

// Zones keep memory together; when there is no other, that does not matter any more.
Block *Manager::take_anywhere(StreamPool &pool, uint64_t bytes) {
    const Zone zone = zone_for(bytes);
    Block *block = take_block(pool, bytes);
    if (block || zone == Zone::dedicated) {
        return block;
    }
    block = heap_.take(pool, bytes, zone);
    if (!block && zone == Zone::small) {
        heap_.sort_scraps_in();
    }
    return block ? block : heap_.take(pool, bytes, zone == Zone::small ? Zone::large : Zone::small);
}

// A free block of another stream that `pool` could have after waiting for it: the tightest, or
// the next after `previous`.
Block *Manager::candidate_for(const StreamPool &pool, uint64_t bytes, const Block *previous) const {
    const Zone zone = zone_for(bytes);
    SizeNode position;
    position.size = previous ? previous->size : bytes;
    position.address = previous ? previous->begin : 0;
    const SizeNode *found = nullptr;
    StreamPool *d = zone == Zone::dedicated ? nullptr : order_.first_incomplete();
    for (; d; d = order_.next_incomplete(*d)) {
        const SizeNode *node = d == &pool ? nullptr : Heap::offered_after(*d, position, zone);
        found = node && (!found || node->before(*found)) ? node : found;
    }
    return found ? found->block() : nullptr;
}

Block *Manager::reuse(Lock &lock, const Caller &caller, StreamPool &pool, uint64_t bytes) {
    Block *block = take_block(pool, bytes);
    if (block) {
        return block;
    }
    // First the stream that has the block that fits best, then all of them.
    if (Block *candidate = candidate_for(pool, bytes, nullptr)) {
        order_.record_and_query(lock, owner_of(*candidate));
        block = take_block(pool, bytes);
    }
    if (!block) {
        order_.call_for_events();
        order_.record_and_query_all(lock, caller.kind == StreamKind::none);
        block = take_block(pool, bytes);
    }
    return served_.serves() ? block : nullptr;
}

Block *Manager::wait_for_stream(Lock &lock, const Caller &caller, StreamPool &pool,
                                uint64_t bytes) {
    if (pool.order != Order::stream || !served_.serves()) {
        return nullptr;
    }
    heap_.reserve_record();
    Block *block = candidate_for(pool, bytes, nullptr);
    for (int i = 1; block && !has_event(*block); i++) {
        block = i < candidates_tried ? candidate_for(pool, bytes, block) : nullptr;
    }
    if (!block) {
        return nullptr;
    }
    StreamPool &other = owner_of(*block);
    const uint64_t tag = block->tag;
    Block *taken = heap_.take_offered(*block, bytes);
    other.hold();
    const bool waits = order_.wait_on_stream(lock, caller, other, tag);
    if (!waits) {
        heap_.give(*taken, other);
        order_.mark_dirty(other, bytes);
    }
    other.unhold();
    return waits ? taken : nullptr;
}

// What a request takes that does not fit a slot. Under ipc=dedicated it is whole segments from a
// certain size on, and no other sizes are multiples of a segment's granule.
uint64_t Manager::block_bytes(uint64_t size) const {
    const uint64_t bytes = round_up(size, granule);
    return bytes < options_.dedicated_from ? bytes : round_up(bytes, segment_granule);
}

Zone Manager::zone_for(uint64_t bytes) const {
    if (bytes >= options_.dedicated_from && bytes % segment_granule == 0) {
        return Zone::dedicated;
    }
    return bytes <= small_limit ? Zone::small : Zone::large;
}

// Requests share segments that are a fraction of what there is, up to 32 MiB: larger ones
// overshoot, smaller ones leave holes that cannot become one. Larger requests get their measure.
uint64_t Manager::growth_for(uint64_t bytes) const {
    const Zone zone = zone_for(bytes);
    const uint64_t part =
        zone == Zone::small ? heap_.bytes_in(zone) / 32 : holdings_.claimed() / 16;
    const uint64_t share = std::min(part, largest_share);
    const uint64_t wanted = options_.segment != 0 ? options_.segment : share;
    const uint64_t least = zone == Zone::dedicated ? bytes : wanted;
    return round_up(std::max({bytes, least, segment_granule}), segment_granule) +
           (ragged_ ? segment_granule : 0);
}

// A small request does so before it asks about other streams' memory if the small zone is a small
// part of all, or if that much was held before and much of it is not needed now.
bool Manager::grows_first(uint64_t bytes) const {
    if (paged_ || zone_for(bytes) != Zone::small) {
        return false;
    }
    const uint64_t growth = growth_for(bytes);
    return heap_.bytes_in(Zone::small) + growth <= holdings_.claimed() / idle_part ||
           (holdings_.claimed() + growth <= holdings_.peak_reserved() &&
            counts_.taken() <= holdings_.most_with(bytes) / 4 * 3);
}

// A request with no stream.
bool Manager::grows_unasked(uint64_t bytes) const {
    return may_grow_unasked(bytes, holdings_.allowance(bytes));
}

Block *Manager::grow(Lock &lock, StreamPool &pool, uint64_t bytes, CUresult &result) {
    if (paged_) {
        return grow_paged(lock, pool, bytes, result);
    }
    const Zone zone = zone_for(bytes);
    Block *block = await_exchange(lock, pool, bytes);
    if (block) {
        return block;
    }
    exchange_idle(lock, bytes);
    if (zone == Zone::large && holdings_.claimed() + growth_for(bytes) > holdings_.ceiling(bytes)) {
        heap_.reserve_record(); // what cannot be exchanged is cut after all
        block = heap_.take(pool, bytes, zone);
    }
    for (int attempt = 0; attempt < 2 && !block; attempt++) {
        result = add_segment(lock, growth_for(bytes), zone);
        if (says_exhausted(result) && growth_for(bytes) != round_up(bytes, segment_granule)) {
            result = add_segment(lock, round_up(bytes, segment_granule), zone);
        }
        if (result != CUDA_SUCCESS) {
            return nullptr;
        }
        // Fails if the segment's ends were ragged: once more.
        heap_.reserve_record();
        block = zone == Zone::dedicated ? take_block(pool, bytes) : heap_.take(pool, bytes, zone);
    }
    return block;
}

// Waits a while for idle segments whose work is not complete, if those that are complete are not
// enough to exchange. A block, if that alone has made one.
Block *Manager::await_exchange(Lock &lock, StreamPool &pool, uint64_t bytes) {
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
            block = take_block(pool, bytes);
            return block || enough();
        });
    }
    return block;
}

// A segment that is idle and too small for what is asked goes back if the pool would else hold
// more than ever: that is what keeps reserved memory close to live memory, and it ends with the
// warm-up.
void Manager::exchange_idle(Lock &lock, uint64_t bytes) {
    const uint64_t growth = growth_for(bytes);
    while (!moves_.are_deferred() && holdings_.claimed() + growth > holdings_.ceiling(bytes)) {
        Segment *segment =
            idle_for(holdings_.claimed() + growth - holdings_.ceiling(bytes), zone_for(bytes));
        if (!segment) {
            return;
        }
        release_segment(lock, *segment);
    }
}

uint64_t Manager::exchangeable() const {
    uint64_t bytes = 0;
    for (Segment *s = heap_.first_whole(); s; s = heap_.next_whole(*s)) {
        bytes += s->first->dirty() ? 0 : s->driver_bytes;
    }
    return std::min(bytes, holdings_.reserved() - std::min(holdings_.reserved(), options_.initial));
}

// The one that was idle for the longest; but for the little that the small zone grows by, the
// smallest that is enough, else the largest.
Segment *Manager::idle_for(uint64_t missing, Zone zone) const {
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

// Counted before the driver is asked, so that `max` holds whatever other threads do meanwhile.
CUresult Manager::add_segment(Lock &lock, uint64_t bytes, Zone zone) {
    if (!served_.serves()) {
        return served_.lost();
    }
    if (!holdings_.has_room_for(bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = CUDA_SUCCESS;
    std::unique_ptr<Segment> segment;
    {
        const Holdings::Arrival arrival(holdings_, bytes);
        const Moves::Move move(moves_);
        const Unlocked unlocked(lock);
        segment = new_segment(bytes, result);
    }
    served_.note_error(result);
    if (!segment) {
        return result;
    }
    holdings_.add(bytes);
    ragged_ = ragged_ || segment->size != segment->driver_bytes;
    segment->zone = zone;
    heap_.add(*segment.release());
    return CUDA_SUCCESS;
}

std::unique_ptr<Segment> Manager::new_segment(uint64_t bytes, CUresult &result) {
    const Relaxed relaxed(driver_);
    CUdeviceptr base = 0;
    result = driver_.cuMemAlloc(&base, bytes);
    if (result != CUDA_SUCCESS) {
        return nullptr;
    }
    try {
        // What the driver hands out in such sizes is aligned to 2 MiB; if it is ever not, the
        // ragged ends are left out.
        const uint64_t first = round_up(base, segment_granule);
        const uint64_t last = (base + bytes) / segment_granule * segment_granule;
        if (first >= last) {
            driver_.cuMemFree(base);
            result = CUDA_ERROR_OUT_OF_MEMORY;
            return nullptr;
        }
        auto segment = std::make_unique<Segment>(base, bytes, first, last - first);
        const Lock lock(mutex_);
        heap_.prepare(*segment);
        return segment;
    } catch (...) {
        driver_.cuMemFree(base);
        throw;
    }
}

// As often as other threads' memory comes back meanwhile, but not for ever.
Block *Manager::squeeze(Lock &lock, const Caller &caller, StreamPool &pool, uint64_t bytes,
                        CUresult &result) {
    constexpr int most_rounds = 64;
    Block *block = nullptr;
    bool others = false; // have given something back since
    for (int round = 0; round < most_rounds && !block; round++) {
        const bool may_wait = !caller.capturing && !order_.has_announced_captures();
        const Moves::Watch watch(moves_);
        if (round > 0 && may_wait) {
            order_.wait_for_context(lock);
        }
        caches_.drain_all();
        drop_spares();
        const uint64_t calls = caches_.calls_served();
        block = take_anywhere(pool, bytes);
        if (!block && (paged_ || others)) {
            block = grow(lock, pool, bytes, result);
        }
        while (!block && !moves_.are_deferred() && heap_.first_whole() && says_exhausted(result)) {
            release_segment(lock, *heap_.first_whole());
            block = grow(lock, pool, bytes, result);
        }
        block = block ? block : wait_for_stream(lock, caller, pool, bytes);
        const bool last = round > 0 || !may_wait;
        others = !block && last &&
                 (moves_.await(lock, watch) ||
                  (calls != caches_.calls_served() && bytes <= holdings_.idle_at_most()));
        if (last && !others) {
            break;
        }
    }
    return block;
}

// --- back to the driver
// ---------------------------------------------------------------------------

// cuMemFree itself waits for work that uses the memory, so a whole block may still be dirty.
uint64_t Manager::release_segment(Lock &lock, Segment &segment) {
    heap_.remove(segment);
    caches_.await_lookups();
    const uint64_t bytes = segment.driver_bytes;
    CUresult result = CUDA_SUCCESS;
    {
        const Moves::Move move(moves_);
        const Unlocked unlocked(lock);
        if (served_.lives()) {
            const Relaxed relaxed(driver_);
            result = driver_.cuMemFree(segment.driver_base);
        }
        delete &segment;
    }
    served_.note_error(result);
    holdings_.remove(bytes);
    return bytes;
}

void Manager::drop_spares() {
    order_.each_pool([this](StreamPool &pool) { slabs_.drop_spares(pool); });
}

uint64_t Manager::release_idle(Lock &lock, uint64_t keep, bool complete_only) {
    if (paged_) {
        return release_pages(lock, keep);
    }
    uint64_t released = 0;
    Segment *segment = heap_.first_whole();
    while (segment && !moves_.are_deferred() && holdings_.cached() > keep) {
        if (complete_only && segment->first->dirty()) {
            segment = heap_.next_whole(*segment);
            continue;
        }
        released += release_segment(lock, *segment);
        segment = heap_.first_whole();
    }
    return released;
}

} // namespace emm::pool
