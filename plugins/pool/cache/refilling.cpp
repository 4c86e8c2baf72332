// Filling and emptying magazines.
#include "thread_caches.h"

namespace emm::pool {

// A larger bin, if that is allowed and there is host memory for it.
void ThreadCaches::widen(Bin &bin, unsigned index, uint32_t limit) {
    const uint32_t capacity = most_slots_a_bin(index);
    try {
        if (!bin.slots) {
            bin.slots = std::make_unique<SlotAt[]>(capacity);
        }
        bin.limit = std::min(std::max({2 * bin.limit, limit, first_bin_limit}), capacity);
    } catch (const std::bad_alloc &) {
    }
}

// Fills a bin with a batch from a magazine that had too much, else to half of its limit from the
// free pool's slots.
void ThreadCaches::refill(Magazine &magazine, unsigned index) {
    Bin &bin = magazine.bins_[index];
    StreamPool &pool = magazine.pool;
    if (bin.count.get() > 0) {
        return;
    }
    if (const uint32_t waiting = magazine.depot_.waiting(index)) {
        widen(bin, index, waiting);
        if (magazine.swap_in(index)) {
            return;
        }
    }
    widen(bin, index, 0);
    while (bin.count.get() < (magazine.unordered ? bin.limit : bin.limit / 2)) {
        Slot *slot = memory_.slabs.take(pool, index);
        if (!slot) {
            return;
        }
        memory_.counts.count_taken(class_size(index));
        pool.count_allocation();
        bin.push({slot->slab->address(*slot), slot});
    }
}

void ThreadCaches::take_over(Magazine &magazine) {
    unpark(magazine);
    add_counts(magazine);
}

void ThreadCaches::add_counts(Magazine &magazine) {
    if ((magazine.allocations_.get() | magazine.frees_.get()) == 0) {
        return;
    }
    memory_.counts.add(magazine.allocations_.get(), magazine.frees_.get(), magazine.live_.get(),
                       magazine.highest_.get());
    magazine.allocations_.set(0);
    magazine.frees_.set(0);
    magazine.live_.set(0);
    magazine.highest_.set(0);
}

// --- emptying ------------------------------------------------------------------------------------

// Slots that neither a magazine nor a batch has any more return to their slabs.
void ThreadCaches::give_slots(const SlotAt *slots, uint32_t count, StreamPool &pool) {
    if (count == 0) {
        return;
    }
    order_.mark_dirty(pool, 0); // first: a slab that becomes idle takes its tag from it
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        Slot &slot = *slots[i].slot;
        bytes += class_size(slot.index);
        pool.order == Order::anyone ? memory_.slabs.give_complete(slot)
                                    : memory_.slabs.give(slot, pool);
    }
    memory_.counts.count_returned(bytes);
    pool.count_frees(count);
    order_.mark_dirty(pool, bytes, count + 1);
}

// The `count` oldest slots go to the depot if it accepts them, else to their slabs.
void ThreadCaches::unload(Magazine &magazine, unsigned index, uint32_t count) {
    Bin &bin = magazine.bins_[index];
    if (!magazine.depot_.unload(bin, index, count, spares_)) {
        give_slots(bin.slots.get(), count, magazine.pool);
        bin.forget_oldest(count);
    }
}

void ThreadCaches::make_room(Magazine &magazine, unsigned index) {
    if (magazine.unordered) {
        quarantine(magazine, index);
        widen((*magazine.quarantine_)[index], index, most_slots_a_batch);
        for (unsigned i = 0; i < slab_classes && magazine.quarantined_bytes() > most_quarantined;
             i++) {
            quarantine(magazine, i);
        }
        return;
    }
    Bin &bin = magazine.bins_[index];
    if (bin.full()) {
        widen(bin, index, 0);
    }
    if (bin.full()) {
        unload(magazine, index, (bin.count.get() + 1) / 2);
    }
}

// A bin of unordered frees joins the pool's quarantine as it is.
void ThreadCaches::quarantine(Magazine &magazine, unsigned index) {
    Bin &bin = (*magazine.quarantine_)[index];
    const uint32_t count = bin.count.get();
    if (count == 0) {
        return;
    }
    if (Batch *batch = magazine.depot_.make_batch(bin, index, count, spares_)) {
        batch->tag = order_.clock().now();
        quarantine_.push(*batch);
        quarantined_ += batch->bytes();
        order_.mark_dirty(order_.unordered(), batch->bytes(), count + 1);
    }
}

void ThreadCaches::complete_batches(uint64_t tag) {
    StreamPool &common = order_.common();
    block_depot_.complete(tag, keeps_complete_blocks());
    asked_ = false;
    while (quarantine_.first && quarantine_.first->tag <= tag) {
        Batch &batch = *quarantine_.pop();
        quarantined_ -= batch.bytes();
        const auto depot = depots_.find(&common);
        if (depot == depots_.end() || !depot->second.put(batch)) {
            give_slots(batch.slots, batch.count, common);
            spares_.give(batch);
        }
    }
}

void ThreadCaches::forget_quarantine() {
    while (quarantine_.first) {
        spares_.give(*quarantine_.pop());
    }
    quarantined_ = 0;
    block_depot_.forget_memory();
    handed_over_ = 0;
    handed_over_bytes_ = 0;
    asked_ = false;
}

void ThreadCaches::clear(Depot &depot, StreamPool &pool) {
    depot.clear([&](const Batch &batch) { give_slots(batch.slots, batch.count, pool); }, spares_);
}

// A parked magazine has had its depot cleared, but batches come to the common one from elsewhere.
void ThreadCaches::clear_depots() {
    each([this](Magazine &m) { clear(m.depot_, m.pool); });
    StreamPool &common = order_.common();
    if (const auto depot = depots_.find(&common); depot != depots_.end()) {
        clear(depot->second, common);
    }
}

// Leaves nothing in a magazine.
void ThreadCaches::drain(Magazine &magazine) {
    add_counts(magazine);
    pinned_.drain_pinned(magazine);
    if (magazine.empty()) {
        return;
    }
    for (Bin &bin : magazine.bins_) {
        give_slots(bin.slots.get(), bin.count.get(), magazine.pool);
        bin.count.set(0);
    }
    unload_blocks(magazine);
    for (unsigned i = 0; magazine.quarantine_ && i < slab_classes; i++) {
        Bin &bin = (*magazine.quarantine_)[i];
        give_slots(bin.slots.get(), bin.count.get(), order_.unordered());
        bin.count.set(0);
    }
}

// The owner is kept out, or is the calling thread.
void ThreadCaches::drain_or_park(Magazine &magazine) {
    if (magazine.is_unused()) {
        active_.remove(magazine);
        magazine.lock.close();
        return;
    }
    drain(magazine);
    magazine.drained_ = true;
}

void ThreadCaches::drain_own() {
    clear_depots();
    each([this](Magazine &m) {
        if (m.is_own()) {
            drain_or_park(m);
        }
    });
    block_depot_.give_complete();
}

bool ThreadCaches::drain_all() {
    bool any = totals_.bytes > 0, unused = false;
    each([&](const Magazine &m) {
        any = any || !m.empty() || (m.pinned && !m.pinned->empty());
        unused = unused || m.is_unused();
    });
    if (any || unused) {
        shut();
        clear_depots();
        each([this](Magazine &m) { drain_or_park(m); });
        reopen();
    }
    return block_depot_.give_complete() || any;
}

} // namespace emm::pool
