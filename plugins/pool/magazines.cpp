// The manager's side of magazines: making, filling, emptying and closing them. The lock is held
// throughout, and what is another thread's is shut while it is looked into.
#include "manager.h"

#include <algorithm>

namespace emm::pool {
namespace {

constexpr uint64_t bin_bytes = 128 << 10; // the most in one bin
constexpr uint64_t largest_kept_block = segment_granule;
constexpr uint32_t most_slots = 64;
constexpr uint32_t trial_calls = 64; // of a stream that may be about to end
constexpr size_t most_passing = 16;  // magazines that a thread has for such streams
constexpr uint32_t first_limit = 4;  // a bin's, doubled each time that it proves too little

uint32_t capacity(unsigned index) {
    return std::clamp(uint32_t(bin_bytes / class_size(index)), first_limit, most_slots);
}

} // namespace

// The calling thread's magazine for the domain; NULL if it can have none. `identity` and `stream`
// lead to it from now on.
Magazine *Manager::own_magazine(uint64_t identity, emm_stream stream, Domain &domain) {
    try {
        Thread *thread = Thread::self();
        if (!thread) {
            return nullptr;
        }
        Magazine *magazine = thread->find(domain, identity_);
        if (!magazine) {
            const bool keeps_blocks =
                domain.order == Order::stream && options_.release_threshold == UINT64_MAX;
            magazine = &thread->make_magazine(*this, identity_, domain,
                                              keeps_blocks ? largest_kept_block : 0);
            magazines_.push_back(*magazine);
            domain.magazines++;
        }
        thread->set_way(identity, stream, *magazine);
        return magazine;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

// The magazine of a stream that nobody registered is found by its handle and proved by its id: a
// registration, or a call for events, sends its next call the long way.
Magazine *Manager::passing_magazine(emm_stream stream) {
    const uint64_t identity = serving_.load(std::memory_order_relaxed) | passing_bit;
    Magazine *magazine = Thread::magazine_for(identity, stream);
    if (!magazine || magazine->registrations != registrations_.load(std::memory_order_acquire) ||
        magazine->answered != wanted_.load(std::memory_order_relaxed)) {
        return nullptr;
    }
    Caller caller;
    caller.visitor = Visitor::passing;
    caller.stream = stream;
    const bool known = ask_identity(caller) == EMM_OK && !caller.capturing;
    return known && caller.key == magazine->key ? magazine : nullptr;
}

// The magazine for a call that has come the long way, once that is worth while; else NULL.
Magazine *Manager::magazine_of(const Caller &caller, Domain &domain) {
    if (caller.visitor != Visitor::passing || caller.capturing || ++domain.calls < trial_calls) {
        return nullptr;
    }
    make_room_for_passing(domain);
    Magazine *magazine = own_magazine(identity_ | passing_bit, caller.stream, domain);
    if (magazine) {
        magazine->registrations = registrations_.load(std::memory_order_relaxed);
        magazine->answered = wants_event(domain) ? domain.answered : wanted_.load();
    }
    return magazine;
}

// Streams that nobody registered end without a word, so a thread has a few magazines for them only.
void Manager::make_room_for_passing(const Domain &domain) {
    const Thread *self = Thread::self_if_any();
    size_t count = 0;
    Magazine *oldest = nullptr;
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        const bool passing = m->domain.order == Order::stream && !m->domain.registered;
        if (&m->owner == self && &m->domain == &domain) {
            return;
        }
        if (&m->owner == self && passing) {
            oldest = oldest ? oldest : m;
            count++;
        }
    }
    if (count >= most_passing) {
        drain(*oldest);
        close(*oldest);
    }
}

// --- filling -------------------------------------------------------------------------------------

// A larger bin, if that is allowed and there is host memory for it.
void Manager::widen(Bin &bin, unsigned index) {
    try {
        if (!bin.entries) {
            bin.entries = std::make_unique<Bin::Entry[]>(capacity(index));
        }
        bin.limit = std::min(std::max(2 * bin.limit, first_limit), capacity(index));
    } catch (const std::bad_alloc &) {
    }
}

// Brings an empty bin to half of what it may hold, with what the domain has at hand.
void Manager::restock(Magazine &magazine, unsigned index) {
    Bin &bin = magazine.bins[index];
    widen(bin, index);
    while (bin.count.get() < bin.limit / 2) {
        Slot *slot = slabs_.take(magazine.domain, index);
        if (!slot) {
            return;
        }
        taken_ += class_size(index);
        magazine.domain.balance++;
        bin.push(slot->slab->address(*slot), *slot);
    }
}

// --- emptying ------------------------------------------------------------------------------------

// What the magazine counted becomes part of the manager's statistics.
void Manager::take_over(Magazine &magazine) {
    peak_live_ = std::max(peak_live_, live_ + magazine.highest.get());
    live_ += magazine.live.get();
    live_count_ += int64_t(magazine.allocations.get() - magazine.frees.get());
    allocations_ += magazine.allocations.get();
    frees_ += magazine.frees.get();
    magazine.allocations.set(0);
    magazine.frees.set(0);
    magazine.live.set(0);
    magazine.highest.set(0);
}

// The `count` oldest go home.
void Manager::unload(Bin &bin, uint32_t count, Domain &domain) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        Slot &slot = *bin.entries[i].slot;
        bytes += class_size(slot.index);
        slabs_.give(slot, domain);
    }
    std::copy(&bin.entries[count], &bin.entries[bin.count.get()], &bin.entries[0]);
    bin.count.add(-count);
    taken_ -= bytes;
    domain.balance -= count;
    touch(domain, bytes);
    domain.open_frees += count;
}

void Manager::unload_blocks(Magazine &magazine) {
    Domain &domain = magazine.domain;
    for (uint32_t i = 0; i < magazine.block_count.get(); i++) {
        heap_.give(*magazine.blocks[i].block, domain);
    }
    domain.balance -= magazine.block_count.get();
    taken_ -= magazine.block_bytes.get();
    touch(domain, magazine.block_bytes.get());
    magazine.block_count.set(0);
    magazine.block_bytes.set(0);
}

void Manager::unload_quarantine(Magazine &magazine) {
    if (magazine.quarantine.count.get() > 0) {
        unload(magazine.quarantine, magazine.quarantine.count.get(), unordered_);
        magazine.quarantined_bytes.set(0);
    }
}

void Manager::drain(Magazine &magazine) {
    take_over(magazine);
    if (magazine.empty()) {
        return;
    }
    for (Bin &bin : magazine.bins) {
        if (bin.count.get() > 0) {
            unload(bin, bin.count.get(), magazine.domain);
        }
    }
    if (magazine.block_count.get() > 0) {
        unload_blocks(magazine);
    }
    unload_quarantine(magazine);
}

void Manager::drain_own() {
    const Thread *self = Thread::self_if_any();
    for (Magazine *m = magazines_.first(); m && self; m = magazines_.next(*m)) {
        if (&m->owner == self) {
            drain(*m);
        }
    }
}

// False: there was nothing in any of them.
bool Manager::drain_all() {
    bool any = false;
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        any = any || !m->empty();
    }
    if (any) {
        shut_magazines(nullptr);
        for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
            drain(*m);
        }
        reopen_magazines();
    }
    return any;
}

// --- shutting and closing ------------------------------------------------------------------------

// The owners of magazines of this domain, or of all if it is NULL, are kept out of them; it must
// not have been away from the lock in between that they are let in again.
void Manager::shut_magazines(const Domain *domain) {
    const Thread *self = Thread::self_if_any();
    const auto concerns = [=](const Magazine &magazine) {
        return &magazine.owner != self && (!domain || &magazine.domain == domain);
    };
    bool any = false;
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        if (concerns(*m)) {
            m->gate.shut();
            any = true;
        }
    }
    if (!any) {
        return;
    }
    Gate::see_everywhere();
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        if (concerns(*m)) {
            m->gate.await_owner();
        }
    }
}

void Manager::reopen_magazines() {
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        m->gate.reopen();
    }
}

// Nobody who looked an address up before the last change to the map is still looking afterwards.
void Manager::await_lookups() {
    shut_magazines(nullptr);
    reopen_magazines();
}

// Empties the magazines of this domain, or of all if it is NULL, for good. Their owners' next call
// finds out, and may make another.
void Manager::close_magazines(const Domain *domain) {
    shut_magazines(domain);
    Magazine *next = nullptr;
    for (Magazine *m = magazines_.first(); m; m = next) {
        next = magazines_.next(*m);
        if (!domain || &m->domain == domain) {
            drain(*m);
            close(*m);
        }
    }
}

void Manager::close(Magazine &magazine) {
    Domain &domain = magazine.domain;
    magazines_.remove(magazine);
    domain.magazines--;
    magazine.gate.lock_for_good(); // from here on it is its owner's alone
    tidy(domain);
}

// The thread that owns it ends.
void Manager::part_with(Magazine &magazine) {
    const Lock lock(mutex_);
    if (!magazine.gate.locked_for_good()) {
        drain(magazine);
        close(magazine);
    }
}

} // namespace emm::pool
