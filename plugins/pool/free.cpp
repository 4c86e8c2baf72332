#include "manager.h"

#include "slow_call.h"

#include <algorithm>

namespace emm::pool {
namespace {

bool is_pinned(BlockOrSlot allocation) {
    return allocation.block && allocation.block->host;
}

} // namespace

// The allocation that begins at `ptr`, if any.
BlockOrSlot Manager::allocation_at(emm_deviceptr ptr) const {
    const BlockOrSlot allocation = memory_.heap.starting_at(ptr);
    return allocation && allocation.requested() != 0 ? allocation : BlockOrSlot{};
}

emm_status Manager::refuse_free(emm_deviceptr ptr, bool pinned) {
    return emm_failf(
        &host_, EMM_E_NOT_OWNED, 0,
        "pool: mem%sfree of 0x%llx: no live %sallocation of this manager%s begins there",
        pinned ? "host" : "", ptr, pinned ? "pinned " : "", pinned ? " with these flags" : "");
}

emm_status Manager::memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
    Magazine *magazine = Thread::magazine_for(serving_.load(std::memory_order_relaxed), stream);
    const bool registered = magazine && !magazine->lock.closed_for_good();
    if (!registered) {
        magazine = caches_.find_unregistered(stream);
    } else if (magazine->never_holds(size) && free_block(*magazine, ptr, size)) {
        return EMM_OK;
    }
    if (magazine && caches_.enter(*magazine)) {
        const Slot *slot = memory_.heap.found_at(ptr).slot;
        if (slot && magazine->is_full(slot->index)) {
            magazine->swap_out(slot->index);
        }
        const bool done = magazine->give_any(memory_.heap, ptr, size);
        magazine->lock.leave();
        if (done) {
            return EMM_OK;
        }
    }
    if (registered && free_block(*magazine, ptr, size)) {
        return EMM_OK;
    }
    return free_place(ptr, size, stream, nullptr);
}

// Frees a block of a size that the magazine never holds to the heap. False: not a plain block; use
// the slow path.
bool Manager::free_block(Magazine &magazine, emm_deviceptr ptr, size_t size) {
    const SlowCall call(served_.driver, caches_);
    Lock lock(served_.mutex);
    if (!served_.serves() || magazine.lock.closed_for_good()) {
        return false;
    }
    Block *block = memory_.heap.found_at(ptr).block;
    const bool beyond = block && !magazine.keeps_recent(block->size);
    const uint64_t lent = beyond ? block->loan.plain_size() : 0;
    if (!is_size_of(lent, size)) {
        return false;
    }
    StreamPool &pool = magazine.unordered ? order_.unordered() : magazine.pool;
    caches_.take_over(magazine);
    if (!caches_.make_room_for_block(magazine, block->size) ||
        !magazine.give_any(memory_.heap, ptr, size)) {
        release({block, nullptr}, pool);
    }
    maintain(lock, pool, nullptr);
    return true;
}

// A free that the thread's magazine does not take: of pinned memory with these flags, or of device
// memory if they are NULL.
emm_status Manager::free_place(emm_deviceptr ptr, size_t size, emm_stream stream,
                               const uint32_t *host_flags) {
    const bool unordered = stream == EMM_STREAM_UNORDERED;
    const auto find = [&] {
        return host_flags ? pinned_.allocation_at(*host_flags, ptr) : allocation_at(ptr);
    };
    const SlowCall call(served_.driver, caches_);
    Lock lock(served_.mutex);
    BlockOrSlot allocation = find();
    const uint64_t asked = allocation ? allocation.requested() : 0;
    if (allocation && size != 0 && size != asked) {
        lock.unlock();
        return emm_failf(&host_, EMM_E_INVALID_VALUE, 0,
                         "pool: mem%sfree of 0x%llx as %zu bytes, which was allocated as %llu; it "
                         "was not freed",
                         host_flags ? "host" : "", ptr, size,
                         static_cast<unsigned long long>(asked));
    }
    Caller caller;
    StreamPool *const known = order_.known(stream, caller);
    if (allocation && !known) {
        const Unlocked unlocked(lock);
        const emm_status status = identify_to_free(stream, caller);
        if (status != EMM_OK) {
            return status;
        }
    }
    allocation = find(); // unless another thread was faster
    if (!allocation) {
        lock.unlock();
        return refuse_free(ptr, host_flags);
    }
    StreamPool &without_stream =
        host_flags ? pinned_.unordered_pool(*allocation.block) : order_.unordered();
    StreamPool &pool = unordered ? without_stream
                       : known   ? *known
                                 : pool_to_free_on(caller, without_stream);
    pool.hold();
    // An unordered free goes to the magazine from which unordered allocations come.
    StreamPool &source = unordered ? order_.common() : pool;
    if (host_flags && known && !allocation.uses()) {
        pinned_.hand_over(stream, source);
    }
    const bool plain =
        served_.serves() && pause_.is_open() && !allocation.uses() && !allocation.capture();
    Magazine *magazine = host_flags || !plain ? nullptr
                         : known              ? caches_.own(stream, source)
                                              : caches_.own_for(caller, pool);
    if (!magazine || !give_to_emptied_magazine(*magazine, allocation)) {
        if (StreamPool *used = release(allocation, pool)) {
            order_.record_event_if_reachable(lock, *used);
        }
    }
    maintain(lock, pool, &caller);
    order_.end_use(pool);
    return EMM_OK;
}

// Puts freed memory into a magazine, after making room if the magazine is full.
bool Manager::give_to_emptied_magazine(Magazine &magazine, BlockOrSlot allocation) {
    caches_.take_over(magazine);
    if (allocation.slot) {
        caches_.make_room(magazine, allocation.slot->index);
    } else {
        caches_.unload_blocks(magazine);
    }
    return magazine.give_any(memory_.heap, allocation.begin(), 0);
}

// If its stream's own order is not available, a free is unordered. All work of the context covers
// such a free, but not a graph's work at each launch. So if a stream captures, or may capture, the
// free is refused. Once the device is lost, nothing is handed out again.
emm_status Manager::identify_to_free(emm_stream stream, Caller &ret_caller) {
    emm_status status = served_.serves() ? order_.identify(stream, ret_caller) : EMM_OK;
    if (ret_caller.capturing) {
        status = order_.enter_capture(ret_caller);
    }
    if (!served_.serves() || ret_caller.invalidated) {
        ret_caller = {};
        return EMM_OK;
    }
    return status;
}

StreamPool &Manager::pool_to_free_on(Caller &caller, StreamPool &unordered) {
    if (caller.kind == StreamKind::none) {
        return unordered;
    }
    try {
        return pool_of(caller);
    } catch (const std::bad_alloc &) {
        if (caller.capturing) {
            throw;
        }
    } catch (const PluginError &) { // the capture has ended, and its graph is gone
    }
    caller = {};
    return unordered;
}

// Frees memory into the free pool. If the memory must wait for further uses, returns a stream that
// should get an event now, or NULL.
StreamPool *Manager::release(BlockOrSlot allocation, StreamPool &pool) {
    if (is_pinned(allocation)) {
        return pinned_.free(allocation, pool);
    }
    pool.count_frees(1);
    memory_.counts.count_free(allocation.requested(), allocation.size());
    allocation.end_loan();
    return order_.free(allocation, pool);
}

void Manager::give(BlockOrSlot allocation, StreamPool &pool) {
    order_.mark_dirty(pool, allocation.size());
    if (is_pinned(allocation)) {
        pinned_.keep_until_complete(*allocation.block, pool);
    } else if (allocation.block) {
        memory_.heap.give(*allocation.block, pool);
    } else {
        memory_.slabs.give(*allocation.slot, pool);
    }
}

void Manager::hold(BlockOrSlot allocation) {
    allocation.state() = State::waiting;
    if (is_pinned(allocation)) {
        pinned_.begin_wait(allocation.size());
    } else {
        holdings_.begin_wait(allocation.size());
    }
}

void Manager::give_held(BlockOrSlot allocation, StreamPool &pool) {
    if (is_pinned(allocation)) {
        pinned_.end_wait(allocation.size());
    } else {
        holdings_.end_wait(allocation.size());
    }
    give(allocation, pool);
}

void Manager::complete(StreamPool &pool, uint64_t tag) {
    memory_.heap.complete(pool, tag);
    memory_.slabs.complete(pool, tag);
    pinned_.complete(pool, tag);
    if (&pool == &order_.unordered()) {
        caches_.complete_batches(tag);
    }
}

// --- after a call --------------------------------------------------------------------------------

// Occasional work after a call; the lock may be let go of. The call itself is done, so a lack of
// host memory only puts the work off.
void Manager::maintain(Lock &lock, StreamPool &pool, const Caller *caller) {
    try {
        do_maintenance(lock, pool, caller);
    } catch (const std::bad_alloc &) {
        if (!lock.owns_lock()) {
            lock.lock();
        }
    }
    check();
}

void Manager::do_maintenance(Lock &lock, StreamPool &pool, const Caller *caller) {
    if (&pool == &order_.cross_context()) {
        return cross_context_.do_maintenance(lock);
    }
    // Pinned memory should come back sooner, because it costs more to get.
    const bool unordered = &pool == &order_.unordered();
    const bool seldom = unordered && !pinned_.any_waits_for_context();
    order_.do_maintenance(lock, pool, caller, seldom ? holdings_.allowance(0) : Allowance{},
                          unordered && caches_.takes_batch());
    if (holdings_.may_be_too_idle() && pause_.is_open() && backing_->may_have_idle() &&
        !moves_.returns_are_deferred() && holdings_.cached() > holdings_.most_idle()) {
        const PauseState::Use use(lock, pause_);
        order_.record_and_query_all(lock, false);
        backing_->release_idle(lock, holdings_.most_idle(), true);
    }
    caches_.set_limit(limit_of_caches(holdings_.of_device()));
}

} // namespace emm::pool
