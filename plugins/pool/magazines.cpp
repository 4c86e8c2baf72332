// The manager's side of magazines: making, filling and emptying them. The lock is held throughout,
// and what is another thread's is shut while it is looked into.
#include "manager.h"

#include <algorithm>

namespace emm::pool {
namespace {

constexpr uint64_t bin_bytes = 128 << 10; // the most in one bin
constexpr uint64_t largest_kept_block = segment_granule;
constexpr uint64_t most_shelved = 1 << 20; // bytes, for a domain
constexpr uint32_t most_slots = Batch::most;
constexpr uint32_t trial_calls = 64;           // of a stream that may be about to end
constexpr size_t most_unregistered = 16;       // magazines that a thread has for such streams
constexpr uint64_t most_quarantined = 1 << 20; // bytes, in one magazine
constexpr uint32_t first_limit = 4; // a bin's, doubled each time that it proves too little

uint32_t capacity(unsigned index) {
    return std::clamp(uint32_t(bin_bytes / class_size(index)), first_limit, most_slots);
}

// How many slots the next batch has.
uint32_t waiting_on(SlotShelf &shelf, unsigned index) {
    const std::lock_guard lock(shelf.mutex);
    return shelf.batches[index] ? shelf.batches[index]->count : 0;
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
            const auto [shelf, fresh] = shelves_.try_emplace(&domain);
            try {
                magazine = &thread->make_magazine(*this, identity_, domain, shelf->second,
                                                  keeps_blocks ? largest_kept_block : 0);
            } catch (...) {
                if (fresh) {
                    shelves_.erase(shelf);
                }
                throw;
            }
            magazines_.push_back(*magazine);
            domain.enter_magazine();
        }
        thread->set_way(identity, stream, *magazine);
        return magazine;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

// The magazine of an unregistered stream is found by its handle and proved by its id: a
// registration, or a call for events, sends its next call the long way.
Magazine *Manager::unregistered_magazine(emm_stream stream) {
    const uint64_t identity = serving_.load(std::memory_order_relaxed) | unregistered_bit;
    Magazine *magazine = Thread::magazine_for(identity, stream);
    if (!magazine || magazine->registrations != order_.registrations() ||
        magazine->answered != order_.calls_for_events()) {
        return nullptr;
    }
    return order_.is_still(stream, magazine->key) ? magazine : nullptr;
}

// The magazine for a call that has come the long way, once that is worth while; else NULL.
Magazine *Manager::magazine_of(const Caller &caller, Domain &domain) {
    if (caller.kind != StreamKind::unregistered || caller.capturing ||
        domain.count_slow_call() < trial_calls) {
        return nullptr;
    }
    make_room_for_unregistered(domain);
    Magazine *magazine = own_magazine(identity_ | unregistered_bit, caller.stream, domain);
    if (magazine) {
        magazine->registrations = order_.registrations();
        magazine->answered = order_.answered(domain);
    }
    return magazine;
}

// Unregistered streams end without a word, so a thread has a few magazines for them only.
void Manager::make_room_for_unregistered(const Domain &domain) {
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
    if (count >= most_unregistered) {
        drain(*oldest);
        close(*oldest);
    }
}

// --- filling -------------------------------------------------------------------------------------

// A larger bin, if that is allowed and there is host memory for it.
void Manager::widen(Bin &bin, unsigned index, uint32_t limit) {
    try {
        if (!bin.slots) {
            bin.slots = std::make_unique<SlotAt[]>(capacity(index));
        }
        bin.limit = std::min(std::max({2 * bin.limit, limit, first_limit}), capacity(index));
    } catch (const std::bad_alloc &) {
    }
}

// Fills an empty bin: with a batch that some magazine had too much, else to half of what it may
// hold with what the domain has at hand.
void Manager::restock(Magazine &magazine, unsigned index) {
    Bin &bin = magazine.bins[index];
    Domain &domain = magazine.domain;
    if (bin.count.get() > 0) {
        return;
    }
    if (const uint32_t waiting = waiting_on(magazine.shelf, index)) {
        widen(bin, index, waiting);
        if (swap_in(magazine, index)) {
            return;
        }
    }
    widen(bin, index, 0);
    while (bin.count.get() < (magazine.unordered ? bin.limit : bin.limit / 2)) {
        Slot *slot = slabs_.take(domain, index);
        if (!slot) {
            return;
        }
        taken_ += class_size(index);
        domain.count_allocation();
        bin.push({slot->slab->address(*slot), slot});
    }
}

// --- batches -------------------------------------------------------------------------------------

// One that swaps on this shelf, whose lock is held, have emptied, or another; NULL without host
// memory.
Batch *Manager::spare_batch(SlotShelf &shelf) {
    Batch *&first = shelf.spares ? shelf.spares : spare_batches_;
    Batch *batch = first;
    if (batch) {
        first = batch->next;
    }
    return batch ? batch : new (std::nothrow) Batch;
}

void Manager::recycle(Batch &batch) {
    batch.next = spare_batches_;
    spare_batches_ = &batch;
}

// The `count` oldest slots of a bin as a batch; NULL without host memory. The shelf's lock is held.
Batch *Manager::make_batch(SlotShelf &shelf, Bin &bin, unsigned index, uint32_t count) {
    Batch *batch = spare_batch(shelf);
    if (batch) {
        fill_batch(*batch, bin, index, count);
    }
    return batch;
}

void Manager::fill_batch(Batch &batch, Bin &bin, unsigned index, uint32_t count) {
    batch.index = index;
    batch.count = count;
    std::copy_n(bin.slots.get(), count, batch.slots);
    forget_oldest(bin, count);
}

void Manager::forget_oldest(Bin &bin, uint32_t count) {
    SlotAt *const slots = bin.slots.get(); // NULL if the bin was never filled
    std::copy(slots + count, slots + bin.count.get(), slots);
    bin.count.add(-count);
}

// False: the shelf is full, or somebody is looking for whole blocks.
bool Manager::may_shelve(const SlotShelf &shelf, uint64_t bytes) const {
    return acquiring_.load(std::memory_order_relaxed) == 0 && shelf.bytes + bytes <= most_shelved;
}

// The shelf's lock is held.
void Manager::put_on_shelf(SlotShelf &shelf, Batch &batch) {
    batch.next = shelf.batches[batch.index];
    shelf.batches[batch.index] = &batch;
    shelf.bytes += batch.bytes();
    shelved_.fetch_add(batch.bytes(), std::memory_order_relaxed);
}

bool Manager::put_on_shelf_if_allowed(SlotShelf &shelf, Batch &batch) {
    const std::lock_guard lock(shelf.mutex);
    const bool may = may_shelve(shelf, batch.bytes());
    if (may) {
        put_on_shelf(shelf, batch);
    }
    return may;
}

// One of no more than that many slots, or NULL. The shelf's lock is held.
Batch *Manager::take_from_shelf(SlotShelf &shelf, unsigned index, uint32_t most) {
    Batch *batch = shelf.batches[index];
    if (!batch || batch->count > most) {
        return nullptr;
    }
    shelf.batches[index] = batch->next;
    shelf.bytes -= batch->bytes();
    shelved_.fetch_sub(batch->bytes(), std::memory_order_relaxed);
    return batch;
}

// Fills an empty bin from the stream's shelf. By its owner inside the gate, or with the pool's
// lock.
bool Manager::swap_in(Magazine &magazine, unsigned index) {
    Bin &bin = magazine.bins[index];
    SlotShelf &shelf = magazine.shelf;
    if (bin.count.get() > 0) {
        return false;
    }
    const std::lock_guard lock(shelf.mutex);
    Batch *batch = take_from_shelf(shelf, index, bin.limit);
    if (batch) {
        std::copy_n(batch->slots, batch->count, bin.slots.get());
        bin.count.set(batch->count);
        batch->next = shelf.spares;
        shelf.spares = batch;
    }
    return batch;
}

// Puts the older half of a full bin on the stream's shelf, if there is an empty batch for it.
bool Manager::swap_out(Magazine &magazine, unsigned index) {
    Bin &bin = magazine.bins[index];
    SlotShelf &shelf = magazine.shelf;
    const uint32_t count = (bin.count.get() + 1) / 2;
    if (magazine.unordered || bin.limit < capacity(index)) {
        return false;
    }
    const std::lock_guard lock(shelf.mutex);
    Batch *batch = may_shelve(shelf, count * class_size(index)) ? shelf.spares : nullptr;
    if (batch) {
        shelf.spares = batch->next;
        fill_batch(*batch, bin, index, count);
        put_on_shelf(shelf, *batch);
    }
    return batch;
}

void Manager::clear_shelf(SlotShelf &shelf, Domain &domain) {
    const std::lock_guard lock(shelf.mutex);
    for (unsigned i = 0; i < slab_classes; i++) {
        while (Batch *batch = take_from_shelf(shelf, i, Batch::most)) {
            give_slots(batch->slots, batch->count, domain);
            recycle(*batch);
        }
    }
    while (Batch *batch = shelf.spares) {
        shelf.spares = batch->next;
        recycle(*batch);
    }
}

// All work that may use what was freed unordered with tags up to this one is done.
void Manager::complete_batches(uint64_t tag) {
    while (quarantine_.first && quarantine_.first->tag <= tag) {
        Batch &batch = *quarantine_.pop();
        quarantined_ -= batch.bytes();
        const auto shelf = shelves_.find(&order_.common());
        if (shelf == shelves_.end() || !put_on_shelf_if_allowed(shelf->second, batch)) {
            give_slots(batch.slots, batch.count, order_.common());
            recycle(batch);
        }
    }
}

// --- emptying ------------------------------------------------------------------------------------

// Slots that nobody has go home.
void Manager::give_slots(const SlotAt *slots, uint32_t count, Domain &domain) {
    if (count == 0) {
        return;
    }
    order_.mark_dirty(domain,
                      0); // first: a slab that this makes idle takes its tag from the domain
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        Slot &slot = *slots[i].slot;
        bytes += class_size(slot.index);
        domain.order == Order::anyone ? slabs_.give_complete(slot) : slabs_.give(slot, domain);
    }
    taken_ -= bytes;
    domain.count_frees(count);
    order_.mark_dirty(domain, bytes, count + 1);
}

// What the magazine counted becomes part of the manager's statistics.
void Manager::take_over(Magazine &magazine) {
    if ((magazine.allocations.get() | magazine.frees.get()) == 0) {
        return;
    }
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

// The `count` oldest go on the shelf if they may, else home.
void Manager::unload(Magazine &magazine, unsigned index, uint32_t count) {
    Bin &bin = magazine.bins[index];
    {
        const std::lock_guard lock(magazine.shelf.mutex);
        const bool may = may_shelve(magazine.shelf, count * class_size(index));
        if (Batch *batch = may ? make_batch(magazine.shelf, bin, index, count) : nullptr) {
            return put_on_shelf(magazine.shelf, *batch);
        }
    }
    give_slots(bin.slots.get(), count, magazine.domain);
    forget_oldest(bin, count);
}

void Manager::unload_blocks(Magazine &magazine) {
    Domain &domain = magazine.domain;
    if (magazine.block_count.get() == 0) {
        return;
    }
    for (uint32_t i = 0; i < magazine.block_count.get(); i++) {
        heap_.give(*magazine.blocks[i].block, domain);
    }
    domain.count_frees(magazine.block_count.get());
    taken_ -= magazine.block_bytes.get();
    order_.mark_dirty(domain, magazine.block_bytes.get());
    magazine.block_count.set(0);
    magazine.block_bytes.set(0);
}

// For one more freed slot of this class.
void Manager::make_room(Magazine &magazine, unsigned index) {
    if (magazine.unordered) {
        Magazine::Bins &bins = *magazine.quarantine;
        quarantine(magazine, index);
        widen(bins[index], index, Batch::most);
        for (unsigned i = 0; i < slab_classes && magazine.quarantined_bytes() > most_quarantined;
             i++) {
            quarantine(magazine, i);
        }
        return;
    }
    Bin &bin = magazine.bins[index];
    if (bin.full()) {
        widen(bin, index, 0);
    }
    if (bin.full()) {
        unload(magazine, index, (bin.count.get() + 1) / 2);
    }
}

// A bin of unordered frees joins the manager's quarantine as it is.
void Manager::quarantine(Magazine &magazine, unsigned index) {
    Bin &bin = (*magazine.quarantine)[index];
    const uint32_t count = bin.count.get();
    if (count == 0) {
        return;
    }
    SlotShelf &shelf = magazine.shelf; // where its batches are emptied
    std::unique_lock lock(shelf.mutex);
    Batch *batch = make_batch(shelf, bin, index, count);
    lock.unlock();
    if (batch) {
        batch->tag = clock_.now();
        quarantine_.push(*batch);
        quarantined_ += batch->bytes();
        order_.mark_dirty(order_.unordered(), batch->bytes(), count + 1);
    }
}

// Leaves nothing in a magazine.
void Manager::drain(Magazine &magazine) {
    take_over(magazine);
    drain_pinned(magazine);
    if (magazine.empty()) {
        return;
    }
    for (Bin &bin : magazine.bins) {
        give_slots(bin.slots.get(), bin.count.get(), magazine.domain);
        bin.count.set(0);
    }
    unload_blocks(magazine);
    for (unsigned i = 0; magazine.quarantine && i < slab_classes; i++) {
        Bin &bin = (*magazine.quarantine)[i];
        give_slots(bin.slots.get(), bin.count.get(), order_.unordered());
        bin.count.set(0);
    }
}

// What the calling thread keeps, and what lies on shelves.
void Manager::drain_own() {
    const Thread *self = Thread::self_if_any();
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        clear_shelf(m->shelf, m->domain);
        if (&m->owner == self) {
            drain(*m);
        }
    }
}

// False: there was nothing in any of them.
bool Manager::drain_all() {
    bool any = shelved_ > 0;
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        any = any || !m->empty() || (m->pinned && !m->pinned->empty());
    }
    if (any) {
        shut_magazines(nullptr);
        for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
            clear_shelf(m->shelf, m->domain);
            drain(*m);
        }
        reopen_magazines();
    }
    return any;
}

} // namespace emm::pool
