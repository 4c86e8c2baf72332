#include "manager.h"

#include <algorithm>

namespace emm::pool {
namespace {

// An event for a batch of frees: often enough that memory is not long in coming back, rarely
// enough that its cost (0.2 us) does not show.
constexpr uint32_t batch_frees = 256;
constexpr uint64_t batch_bytes = 2 << 20;

// A stream that frees as much as it allocates may be about to end, so its first few times it is
// given an event; a stream that does so all day is not.
constexpr uint32_t early_seals = 16;

// Streams that nobody registered may end at any time. For each so many new ones twice as many are
// asked, and those whose work is complete are forgotten.
constexpr uint32_t streams_a_round = 32;

} // namespace

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
    const bool registered = magazine && !magazine->gate.locked_for_good();
    if (!registered) {
        magazine = passing_magazine(stream);
    } else if (magazine->never_holds(size) && give_beyond(*magazine, ptr, size)) {
        return EMM_OK;
    }
    if (magazine && magazine->gate.enter()) {
        const Slot *slot = heap_.found_at(ptr).slot;
        if (slot && magazine->bins[slot->index].full()) {
            swap_out(*magazine, slot->index);
        }
        const bool done = magazine->give(heap_, ptr, size);
        magazine->gate.leave();
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
    if (lost_ != CUDA_SUCCESS || magazine.gate.locked_for_good()) {
        return false;
    }
    Block *block = heap_.found_at(ptr).block;
    const bool beyond = block && block->size > magazine.largest_block;
    const uint64_t lent = beyond ? block->loan.plain_size() : 0;
    if (!agree(lent, size)) {
        return false;
    }
    Domain &domain = magazine.unordered ? unordered_ : magazine.domain;
    take_over(magazine);
    release({block, nullptr}, domain);
    touch(domain, block->size);
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
    Domain *domain = stream == EMM_STREAM_UNORDERED ? &unordered_ : known(stream);
    if (!domain || place.uses() || place.capture()) {
        lock.unlock();
        return memfree_slowly(ptr, size, stream);
    }
    // An unordered free goes to the magazine that unordered allocations come from.
    Domain &stocked = domain == &unordered_ ? anyone_ : *domain;
    Magazine *magazine = lost_ == CUDA_SUCCESS ? own_magazine(identity_, stream, stocked) : nullptr;
    if (!magazine || !stow(*magazine, place)) {
        free_on(place, *domain);
    }
    upkeep(lock, *domain, nullptr);
    return EMM_OK;
}

// Puts what is freed into a magazine, after making room if it is full.
bool Manager::stow(Magazine &magazine, Place place) {
    take_over(magazine);
    if (place.slot) {
        make_room(magazine, place.slot->index);
    } else {
        unload_blocks(magazine);
    }
    return magazine.give(heap_, place.begin(), 0);
}

emm_status Manager::memfree_slowly(emm_deviceptr ptr, size_t, emm_stream stream) {
    Caller caller;
    const emm_status known = lost_ == CUDA_SUCCESS ? identify(stream, caller) : EMM_OK;
    if (known == EMM_E_INVALID_VALUE) {
        return known;
    }
    if (known != EMM_OK || (caller.capturing && enter_capture(caller) != EMM_OK)) {
        caller = {}; // whatever the stream is, all work of the context covers it
    }
    Lock lock(mutex_);
    const Place place = lent_at(ptr);
    if (!place) { // somebody else was quicker
        lock.unlock();
        return refuse_free(ptr);
    }
    Domain *domain = &unordered_;
    if (caller.visitor != Visitor::nobody) {
        try {
            domain = &domain_of(caller);
        } catch (const std::exception &) { // no memory, or the capture has ended
            caller = {};
        }
    }
    domain->references++;
    const bool plain = lost_ == CUDA_SUCCESS && !place.uses() && !place.capture();
    Magazine *magazine = plain ? magazine_of(caller, *domain) : nullptr;
    Domain *used = nullptr;
    if (!magazine || !stow(*magazine, place)) {
        used = free_on(place, *domain);
    }
    if (used) {
        seal_if_reachable(lock, *used);
    }
    upkeep(lock, *domain, &caller);
    let_go(*domain);
    return EMM_OK;
}

// An allocation is no more; where its memory goes depends on who may still use it.
Domain *Manager::free_on(Place place, Domain &domain) {
    release(place, domain);
    Capture *capture = place.capture();
    if (capture && capture->gone) {
        place.block->capture = nullptr;
        drop_reference(*capture);
        capture = nullptr;
    }
    if (place.uses()) {
        return free_with_uses(place, domain, capture);
    }
    if (capture && capture == domain.capture) {
        capture->references--;
        place.block->capture = nullptr;
        give(place, domain); // reusable inside the capture
    } else if (domain.capture || capture) {
        hold(place, domain.capture ? *domain.capture : *capture);
    } else {
        give(place, domain);
    }
    return nullptr;
}

// The use record sees the memory through all it has to wait for. Returns a stream that should get
// an event now, or NULL.
Domain *Manager::free_with_uses(Place place, Domain &domain, Capture *capture) {
    UseRecord &record = *place.uses();
    place.uses() = nullptr;
    mark_waiting(place);
    if (capture) { // its reference goes from the block to the record
        place.block->capture = nullptr;
        record.uses.push_back({nullptr, capture});
    }
    if (domain.capture) {
        domain.capture->references++;
        record.uses.push_back({nullptr, domain.capture});
    }
    record.home = domain.capture ? &unordered_ : &domain;
    record.home->references++;
    return advance(record);
}

void Manager::release(Place place, Domain &domain) {
    domain.balance--;
    live_ -= int64_t(place.requested());
    taken_ -= place.size();
    live_count_--;
    frees_++;
    place.end_loan();
}

void Manager::give(Place place, Domain &domain) {
    touch(domain, place.size());
    if (place.block && place.block->host) {
        put_off(*place.block, domain);
    } else if (place.block) {
        heap_.give(*place.block, domain);
    } else {
        slabs_.give(*place.slot, domain);
    }
}

void Manager::mark_waiting(Place place) {
    place.state() = State::waiting;
    waiting_of(place) += place.size();
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
    if (&domain == &everywhere_) {
        return look_after_everywhere(lock);
    }
    if (&domain == &unordered_) {
        if (domain.open_frees >= batch_frees || domain.open_bytes >= batch_bytes) {
            domain.open_frees = 0;
            domain.open_bytes = 0;
            poll(lock, unordered_);
            seal_all(lock);
        }
    } else if (caller && caller->visitor == Visitor::passing && !caller->capturing &&
               wants_event(domain)) {
        domain.answered = wanted_;
        seal(lock, domain, caller->stream);
    }
    if (streams_.made_since_asked() >= streams_a_round) {
        streams_.count_made_anew();
        ask_all(lock, false, 2 * streams_a_round);
    }
    if (!mailbox_->empty()) {
        collect_graphs();
    }
    if (options_.release_threshold != UINT64_MAX && (heap_.whole_bytes() > 0 || options_.paged) &&
        deferring_ == 0 && cached_bytes() > options_.release_threshold) {
        reap(lock, false);
        release_idle(lock, options_.release_threshold, true);
    }
}

// A stream that is known to live during this call only gets its event now or never.
bool Manager::wants_event(const Domain &domain) const {
    if (domain.newest <= domain.sealed || (!streams_.several() && domain.host.empty())) {
        return false;
    }
    return domain.answered != wanted_ || domain.open_bytes >= batch_bytes ||
           (domain.balance <= 0 && domain.seals < early_seals);
}

} // namespace emm::pool
