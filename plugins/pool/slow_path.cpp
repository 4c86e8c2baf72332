// The slow path: what serves a request that finds no free memory. Every stage costs more than the
// one before it:
//
//   reuse            ask which freed memory is complete by now; record events where none tells
//   wait_for_stream  let the asking stream wait, on the device, for the stream that freed a block
//   Backing::grow    wait a while for idle memory, if the pool would else hold more than ever; then
//                    ask the driver for more
//   reclaim          all that is idle makes room for growth; then wait on the CPU for all work
//
// Waiting comes before growth, as in cuMemAllocAsync and RMM: a pool that grows first ends with
// the sum of all streams' peaks, for good. Memory known to be complete comes before both, so a
// stream waits only if everything that is free is really in use.
#include "manager.h"

#include "backing/zones.h"
#include "policy/effort.h"

namespace emm::pool {
namespace {

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
        ret_block = served_.serves() ? backing_->take(pool, bytes) : nullptr;
        if (ret_block) {
            return EMM_OK;
        }
    }
    const Current current = served_.make_current();
    if (current.result() != CUDA_SUCCESS) {
        return served_.failed(current.result(), "cuCtxPushCurrent");
    }
    CUresult result = CUDA_SUCCESS;
    {
        Lock lock(mutex_);
        ret_block = pass_stages(lock, caller, pool, bytes, result);
    }
    if (ret_block) {
        return EMM_OK;
    }
    if (!served_.serves()) {
        return served_.failed(served_.lost(), "a driver call");
    }
    return says_exhausted(result) ? exhausted(bytes, result)
                                  : served_.failed(result, backing_->calls());
}

Block *Manager::pass_stages(Lock &lock, const Caller &caller, StreamPool &pool, uint64_t bytes,
                            CUresult &result) {
    Block *block = nullptr;
    if (grows_first(caller, bytes)) {
        block = backing_->grow(lock, pool, bytes, result);
    }
    block = block ? block : reuse(lock, caller, pool, bytes);
    block = block ? block : wait_for_stream(lock, caller, pool, bytes);
    if (!block && caches_.drain_all()) {
        block = reuse(lock, caller, pool, bytes);
    }
    block = block ? block : backing_->grow(lock, pool, bytes, result);
    if (!block && says_exhausted(result)) {
        block = reclaim(lock, caller, pool, bytes, result);
    }
    return block;
}

bool Manager::grows_first(const Caller &caller, uint64_t bytes) const {
    const bool unordered = caller.kind == StreamKind::none;
    return (unordered && may_grow_unasked(bytes, holdings_.allowance(bytes))) ||
           backing_->grows_first(bytes);
}

Block *Manager::reuse(Lock &lock, const Caller &caller, StreamPool &pool, uint64_t bytes) {
    Block *block = backing_->take(pool, bytes);
    if (block) {
        return block;
    }
    // First the stream that has the block that fits best, then all of them.
    if (Block *candidate = candidate_for(pool, bytes, nullptr)) {
        order_.record_and_query(lock, owner_of(*candidate));
        block = backing_->take(pool, bytes);
    }
    if (!block) {
        order_.call_for_events();
        order_.record_and_query_all(lock, caller.kind == StreamKind::none);
        block = backing_->take(pool, bytes);
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
        block = i < most_candidates ? candidate_for(pool, bytes, block) : nullptr;
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

// A free block of another stream that `pool` could have after waiting for it: the tightest, or
// the next after `previous`.
Block *Manager::candidate_for(const StreamPool &pool, uint64_t bytes, const Block *previous) const {
    const Zone zone = zone_for(options_, bytes);
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

// As often as other threads' memory comes back meanwhile, but not for ever.
Block *Manager::reclaim(Lock &lock, const Caller &caller, StreamPool &pool, uint64_t bytes,
                        CUresult &result) {
    Block *block = nullptr;
    bool others = false; // have given memory back since
    for (int round = 0; round < most_reclaims && !block; round++) {
        const bool may_wait = !caller.capturing && !order_.has_announced_captures();
        const Moves::Watch watch(moves_);
        if (round > 0 && may_wait) {
            order_.wait_for_context(lock);
        }
        caches_.drain_all();
        caches_.give_up_waiting_blocks(); // a segment may go back while work uses it
        drop_spares();
        const uint64_t calls = caches_.calls_served();
        block = take_anywhere(pool, bytes);
        block = block ? block : backing_->reclaim(lock, pool, bytes, others, result);
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

// Zones keep memory together; when there is no other, that does not matter any more.
Block *Manager::take_anywhere(StreamPool &pool, uint64_t bytes) {
    const Zone zone = zone_for(options_, bytes);
    Block *block = backing_->take(pool, bytes);
    if (block || zone == Zone::dedicated) {
        return block;
    }
    block = heap_.take(pool, bytes, zone);
    if (!block && zone == Zone::small) {
        heap_.sort_remnants_in();
    }
    return block ? block : heap_.take(pool, bytes, zone == Zone::small ? Zone::large : Zone::small);
}

void Manager::drop_spares() {
    order_.each_pool([this](StreamPool &pool) { slabs_.drop_spares(pool); });
}

} // namespace emm::pool
