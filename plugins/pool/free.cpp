#include "manager.h"

#include <algorithm>

namespace emm::pool {
// The allocation that begins there, if it is one.
Place Manager::lent_at(emm_deviceptr ptr) const {
    const Place place = heap_.starting_at(ptr);
    return place && place.requested() != 0 ? place : Place{};
}

emm_status Manager::refuse_free(emm_deviceptr ptr) {
    return emm_failf(&host_, EMM_E_NOT_OWNED, 0,
                     "pool: memfree of 0x%llx, which is no live allocation of this manager: freed "
                     "already, or not where an allocation begins",
                     ptr);
}

emm_status Manager::memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
    Magazine *magazine = Thread::magazine_for(serving_.load(std::memory_order_relaxed), stream);
    const bool registered = magazine && !magazine->lock.closed_for_good();
    if (!registered) {
        magazine = caches_.find_unregistered(stream);
    } else if (magazine->never_holds(size) && give_beyond(*magazine, ptr, size)) {
        return EMM_OK;
    }
    if (magazine && magazine->lock.enter()) {
        const Slot *slot = heap_.found_at(ptr).slot;
        if (slot && magazine->is_full(slot->index)) {
            magazine->swap_out(slot->index);
        }
        const bool done = magazine->give(heap_, ptr, size);
        magazine->lock.leave();
        if (done) {
            return EMM_OK;
        }
    }
    if (registered && give_beyond(*magazine, ptr, size)) {
        return EMM_OK;
    }
    return memfree_locked(ptr, size, stream);
}

// A block that the magazine never holds goes to the heap. False: it is none, or there is
// anything unusual about it.
bool Manager::give_beyond(Magazine &magazine, emm_deviceptr ptr, size_t size) {
    Lock lock(mutex_);
    if (!served_.serves() || magazine.lock.closed_for_good()) {
        return false;
    }
    Block *block = heap_.found_at(ptr).block;
    const bool beyond = block && block->size > magazine.largest_block;
    const uint64_t lent = beyond ? block->loan.plain_size() : 0;
    if (!agree(lent, size)) {
        return false;
    }
    Domain &domain = magazine.unordered ? order_.unordered() : magazine.domain;
    caches_.take_over(magazine);
    release({block, nullptr}, domain);
    order_.mark_dirty(domain, block->size);
    heap_.give(*block, domain);
    upkeep(lock, domain, nullptr);
    return true;
}

emm_status Manager::memfree_locked(emm_deviceptr ptr, size_t size, emm_stream stream) {
    Lock lock(mutex_);
    const Place place = lent_at(ptr);
    if (!place) {
        lock.unlock();
        return refuse_free(ptr);
    }
    const uint64_t asked = place.requested();
    if (size != 0 && size != asked) {
        lock.unlock();
        return emm_failf(&host_, EMM_E_INVALID_VALUE, 0,
                         "pool: memfree of 0x%llx as %zu bytes, which was allocated as %llu; it "
                         "was not freed",
                         ptr, size, static_cast<unsigned long long>(asked));
    }
    Domain *domain = stream == EMM_STREAM_UNORDERED ? &order_.unordered() : order_.known(stream);
    if (!domain || place.uses() || place.capture()) {
        lock.unlock();
        return memfree_slowly(ptr, size, stream);
    }
    // An unordered free goes to the magazine that unordered allocations come from.
    Domain &stocked = domain == &order_.unordered() ? order_.common() : *domain;
    Magazine *magazine = served_.serves() ? caches_.own(stream, stocked) : nullptr;
    if (!magazine || !stow(*magazine, place)) {
        free_on(place, *domain);
    }
    upkeep(lock, *domain, nullptr);
    return EMM_OK;
}

// Puts what is freed into a magazine, after making room if it is full.
bool Manager::stow(Magazine &magazine, Place place) {
    caches_.take_over(magazine);
    if (place.slot) {
        caches_.make_room(magazine, place.slot->index);
    } else {
        caches_.unload_blocks(magazine);
    }
    return magazine.give(heap_, place.begin(), 0);
}

emm_status Manager::memfree_slowly(emm_deviceptr ptr, size_t, emm_stream stream) {
    Caller caller;
    const emm_status known = served_.serves() ? order_.identify(stream, caller) : EMM_OK;
    if (known == EMM_E_INVALID_VALUE) {
        return known;
    }
    if (known != EMM_OK || (caller.capturing && order_.enter_capture(caller) != EMM_OK)) {
        caller = {}; // whatever the stream is, all work of the context covers it
    }
    Lock lock(mutex_);
    const Place place = lent_at(ptr);
    if (!place) { // another thread was quicker
        lock.unlock();
        return refuse_free(ptr);
    }
    Domain *domain = &order_.unordered();
    if (caller.kind != StreamKind::none) {
        try {
            domain = &domain_of(caller);
        } catch (const std::exception &) { // no memory, or the capture has ended
            caller = {};
        }
    }
    domain->hold();
    const bool plain = served_.serves() && !place.uses() && !place.capture();
    Magazine *magazine = plain ? caches_.own_for(caller, *domain) : nullptr;
    Domain *used = nullptr;
    if (!magazine || !stow(*magazine, place)) {
        used = free_on(place, *domain);
    }
    if (used) {
        order_.record_event_if_reachable(lock, *used);
    }
    upkeep(lock, *domain, &caller);
    order_.let_go(*domain);
    return EMM_OK;
}

Domain *Manager::free_on(Place place, Domain &domain) {
    release(place, domain);
    return order_.free(place, domain);
}

void Manager::release(Place place, Domain &domain) {
    domain.count_frees(1);
    counts_.count_free(place.requested(), place.size());
    place.end_loan();
}

void Manager::give(Place place, Domain &domain) {
    order_.mark_dirty(domain, place.size());
    if (place.block && place.block->host) {
        put_off(*place.block, domain);
    } else if (place.block) {
        heap_.give(*place.block, domain);
    } else {
        slabs_.give(*place.slot, domain);
    }
}

void Manager::hold(Place place) {
    place.state() = State::waiting;
    waiting_of(place) += place.size();
}

void Manager::give_held(Place place, Domain &domain) {
    waiting_of(place) -= place.size();
    give(place, domain);
}

void Manager::complete(Domain &domain, uint64_t tag) {
    heap_.complete(domain, tag);
    slabs_.complete(domain, tag);
    shelve(domain, tag);
    if (&domain == &order_.unordered()) {
        caches_.complete_batches(tag);
    }
}

// --- after a call
// ---------------------------------------------------------------------------------

// Work that a call leaves behind for once in a while; the lock may be let go of. What the call was
// for is done, so a lack of host memory only puts this off.
void Manager::upkeep(Lock &lock, Domain &domain, const Caller *caller) {
    try {
        look_after(lock, domain, caller);
    } catch (const std::bad_alloc &) {
        if (!lock.owns_lock()) {
            lock.lock();
        }
    }
    check();
}

void Manager::look_after(Lock &lock, Domain &domain, const Caller *caller) {
    if (&domain == &order_.cross_context()) {
        return cross_context_.look_after(lock);
    }
    order_.look_after(lock, domain, caller);
    if (options_.release_threshold != UINT64_MAX && (heap_.whole_bytes() > 0 || options_.paged) &&
        deferring_ == 0 && cached_bytes() > options_.release_threshold) {
        order_.record_and_query_all(lock, false);
        release_idle(lock, options_.release_threshold, true);
    }
}

} // namespace emm::pool
