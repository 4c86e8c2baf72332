#include "manager.h"

#include "backing/zones.h"
#include "search.h"
#include "slow_call.h"

#include <algorithm>

namespace emm::pool {
namespace {

constexpr uint64_t largest_request = uint64_t(1) << 56; // beyond any address space: no overflow

bool fits_a_slot(const StreamPool &pool, uint64_t size) {
    return size <= slab_limit && pool.order != Order::capture;
}

} // namespace

// What other threads freed on the stream lies in its depot. An unregistered stream is identified
// first, by the driver.
emm_status Manager::memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
    Magazine *magazine = Thread::magazine_for(serving_.load(std::memory_order_relaxed), stream);
    const bool registered = magazine && !magazine->lock.closed_for_good();
    if (!registered) {
        magazine = caches_.find_unregistered(stream);
    }
    if (registered && magazine->never_holds(size)) {
        return memalloc_beyond(*magazine, size, stream, ret_ptr);
    }
    if (magazine && magazine->lock.enter()) {
        uint64_t address = magazine->take(size);
        if (address == 0 && size <= slab_limit && magazine->swap_in(class_of(size))) {
            address = magazine->take(size);
        }
        magazine->lock.leave();
        if (address != 0) {
            *ret_ptr = address;
            return EMM_OK;
        }
    }
    return registered && size > slab_limit ? memalloc_beyond(*magazine, size, stream, ret_ptr)
                                           : memalloc_locked(size, stream, ret_ptr);
}

// A block that the calling thread's magazine does not have. While that is not closed, its free pool
// is what the caller's stream means.
emm_status Manager::memalloc_beyond(Magazine &magazine, size_t size, emm_stream stream,
                                    emm_deviceptr *ret_ptr) {
    {
        const SlowCall call(served_.driver, caches_);
        Lock lock(mutex_);
        if (!magazine.lock.closed_for_good() && caches_.hand_over_blocks(magazine)) {
            upkeep(lock, order_.unordered(), nullptr); // what was freed before may be complete
        }
        const bool serves =
            served_.serves() && size <= largest_request && !magazine.lock.closed_for_good();
        if (serves) {
            caches_.take_over(magazine);
            if (caches_.refill_blocks(magazine, round_up(size, granule))) {
                *ret_ptr = magazine.take(size);
                check();
                return EMM_OK;
            }
            magazine.note_miss(round_up(size, granule));
        }
        if (Block *block =
                serves ? backing_->take(magazine.pool, block_bytes(options_, size)) : nullptr) {
            *ret_ptr = account({block, nullptr}, magazine.pool, size);
            upkeep(lock, magazine.pool, nullptr);
            return EMM_OK;
        }
    }
    return memalloc_slowly(size, stream, ret_ptr);
}

emm_status Manager::memalloc_locked(size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
    {
        const SlowCall call(served_.driver, caches_);
        Lock lock(mutex_);
        StreamPool *pool = size <= largest_request ? order_.known(stream) : nullptr;
        emm_deviceptr ptr = 0;
        if (pool && served_.serves()) {
            ptr = take_for(caches_.own(stream, *pool), *pool, size);
        }
        if (ptr) {
            *ret_ptr = ptr;
            upkeep(lock, *pool, nullptr);
            return EMM_OK;
        }
    }
    return memalloc_slowly(size, stream, ret_ptr);
}

// Memory for `pool` that needs no driver call and, while the lock is held anyway, more of it for
// the magazine, which may be NULL. 0: there is none.
emm_deviceptr Manager::take_for(Magazine *magazine, StreamPool &pool, size_t size) {
    if (magazine) {
        caches_.take_over(*magazine);
        if (size <= slab_limit) {
            caches_.refill(*magazine, class_of(size));
        }
        if (const emm_deviceptr ptr = magazine->take(size)) {
            return ptr;
        }
        if (size > slab_limit && caches_.refill_blocks(*magazine, round_up(size, granule))) {
            return magazine->take(size);
        }
        caches_.unload_blocks(*magazine);
    }
    const Place place = take(pool, size);
    if (magazine && place.slot) {
        caches_.refill(*magazine, place.slot->index);
    }
    return place ? account(place, pool, size) : 0;
}

// A place for `pool` that needs no driver call. The lock is held.
Place Manager::take(StreamPool &pool, uint64_t size) {
    if (!fits_a_slot(pool, size)) {
        return {backing_->take(pool, block_bytes(options_, size)), nullptr};
    }
    const unsigned index = class_of(size);
    Slot *slot = slabs_.take(pool, index);
    if (!slot) {
        slabs_.prepare(index);
        Block *block = backing_->take(pool, slab_bytes(index));
        if (!block) {
            return {};
        }
        slabs_.add(index, *block, pool);
        order_.mark_dirty(pool, 0);
        slot = slabs_.take(pool, index);
    }
    return {nullptr, slot};
}

emm_deviceptr Manager::account(Place place, StreamPool &pool, size_t size) {
    place.begin_loan(size);
    order_.adopt(place, pool);
    counts_.count_allocation(size, place.size());
    holdings_.count_request(size);
    check();
    return place.begin();
}

emm_status Manager::memalloc_slowly(size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
    if (!served_.serves()) {
        return served_.failed(served_.lost(), "an earlier call");
    }
    if (size > largest_request ||
        round_up(block_bytes(options_, size), segment_granule) > obtainable()) {
        return refuse_for_good(size);
    }
    const SlowCall call(served_.driver, caches_);
    Caller caller;
    const emm_status status = identify(stream, caller);
    if (status != EMM_OK) {
        return status;
    }
    Lock lock(mutex_);
    StreamPool &pool = pool_of(caller);
    if (caller.kind == StreamKind::unregistered && !order_.has_answered(pool)) {
        pool.hold();
        upkeep(lock, pool, &caller);
        pool.unhold();
    }
    if (const emm_deviceptr ptr = take_for(own_magazine(lock, caller, pool, size), pool, size)) {
        holdings_.count_served();
        *ret_ptr = ptr;
        return EMM_OK;
    }
    return memalloc_by_search(lock, caller, pool, size, ret_ptr);
}

// The calling thread's, if it may serve the request. Blocks that wait for it come to be complete
// there, not in the heap, where a search for them would join and cut them.
Magazine *Manager::own_magazine(Lock &lock, const Caller &caller, StreamPool &pool, size_t size) {
    if (caller.kind != StreamKind::none || size <= slab_limit) {
        return caches_.own_for(caller, pool);
    }
    const uint64_t bytes = round_up(size, granule);
    const Magazine *magazine = caches_.own(EMM_STREAM_UNORDERED, pool);
    if (magazine && !grows_first(caller, bytes) && caches_.asks_about_blocks(*magazine, bytes)) {
        order_.record_and_query_unordered(lock);
    }
    return caches_.own(EMM_STREAM_UNORDERED, pool);
}

emm_status Manager::memalloc_by_search(Lock &lock, const Caller &caller, StreamPool &pool,
                                       size_t size, emm_deviceptr *ret_ptr) {
    emm_status status = EMM_OK;
    Place place;
    pool.hold();
    {
        const Search whole_blocks(lock, caches_);
        const Unlocked unlocked(lock);
        try {
            status = acquire_place(caller, pool, size, place);
        } catch (const std::bad_alloc &) {
            status = host_.fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "pool: out of host memory");
        }
    }
    if (place) {
        *ret_ptr = account(place, pool, size);
        holdings_.count_served();
        upkeep(lock, pool, nullptr);
        order_.let_go_of_capture(pool);
        return EMM_OK;
    }
    counts_.count_failure();
    order_.let_go(pool);
    return status;
}

// A slab is worth more than one slot, so memory too short for a slab may still do for the slot.
emm_status Manager::acquire_place(const Caller &caller, StreamPool &pool, size_t size,
                                  Place &ret_place) {
    emm_status status = EMM_OK;
    Block *block = nullptr;
    if (fits_a_slot(pool, size)) {
        const unsigned index = class_of(size);
        status = acquire(caller, pool, slab_bytes(index), block);
        if (block) {
            ret_place.slot = slot_of_new_slab(*block, index, pool);
            return EMM_OK;
        }
        if (status != EMM_E_OUT_OF_MEMORY) {
            return status;
        }
    }
    status = acquire(caller, pool, block_bytes(options_, size), block);
    ret_place.block = block;
    return status;
}

Slot *Manager::slot_of_new_slab(Block &block, unsigned index, StreamPool &pool) {
    const Lock lock(mutex_);
    order_.mark_dirty(pool, 0);
    try {
        slabs_.prepare(index);
    } catch (const std::bad_alloc &) {
        heap_.give(block, pool);
        throw;
    }
    slabs_.add(index, block, pool);
    return slabs_.take(pool, index);
}

// Whole pages or segments, whatever else goes back.
uint64_t Manager::obtainable() const {
    return holdings_.limit() / segment_granule * segment_granule;
}

// A request that no amount of reclaiming could serve: nothing is asked for, and nothing moves.
emm_status Manager::refuse_for_good(size_t size) {
    {
        const Lock lock(mutex_);
        counts_.count_failure();
    }
    return emm_failf(&host_, EMM_E_OUT_OF_MEMORY, 0,
                     "pool: out of device memory: %zu bytes asked for, more than %s ever allows, "
                     "which is %llu bytes",
                     size, holdings_.is_limited_by_max() ? "max" : "the device",
                     static_cast<unsigned long long>(holdings_.limit()));
}

emm_status Manager::exhausted(size_t size, CUresult result) {
    unsigned long long live = 0, reserved = 0, largest = 0;
    {
        const Lock lock(mutex_);
        live = caches_.live_bytes();
        reserved = holdings_.reserved();
        largest = heap_.largest_free();
    }
    char limit[48] = "no max";
    if (options_.max != UINT64_MAX) {
        snprintf(limit, sizeof limit, "max %llu", static_cast<unsigned long long>(options_.max));
    }
    return emm_failf(&host_, EMM_E_OUT_OF_MEMORY, result,
                     "pool: out of device memory: %zu bytes asked for, %llu live, %llu reserved "
                     "(%s), largest free block %llu",
                     size, live, reserved, limit, largest);
}

} // namespace emm::pool
