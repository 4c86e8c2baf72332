// One thread's cache of memory for one stream. Its owner takes from it and gives to it without a
// lock; the pool fills and empties it in batches. Memory in it counts as taken for the heap and the
// slabs, and the program has none of it.
//
// A stream's magazine takes back memory that was freed on the stream, and may hand it out again at
// once. The magazine of calls without a stream hands out complete memory. Memory that it takes back
// waits in its quarantine for the next batch.
#pragma once

#include "batch.h"
#include "biased_lock.h"
#include "heap/counts.h"
#include "heap/heap.h"
#include "kept_blocks.h"
#include "order/stream_pool.h"
#include "pinned_cache.h"
#include "unordered_blocks.h"

#include <array>

namespace emm::pool {

class Depot;
class Thread;
class ThreadCaches;

// The largest blocks that the stores of a magazine accept, and the most bytes of freed blocks that
// a magazine of calls without a stream keeps.
struct BlockLimits {
    uint64_t recent = 0;
    uint64_t repeated = 0;
    uint64_t unordered = 0;
    uint64_t most_freed = 0;
};

class alignas(128) Magazine {
public:
    Magazine(ThreadCaches &caches, uint64_t manager_identity, StreamPool &its_pool, Depot &depot,
             const Thread &owner, const BlockLimits &limits);

    // --- by its owner, inside its lock
    // The address of memory for `size` bytes, or 0: nothing here fits.
    uint64_t take(size_t size) { return size > slab_limit ? take_block(size) : take_newest(size); }
    // Like take(), but of the blocks this looks only at the newest one, and not at blocks of
    // unordered calls.
    uint64_t take_newest(size_t size) {
        const uint64_t address = size - 1 < slab_limit ? take_slot(size) : take_newest_block(size);
        if (address != 0) [[likely]] {
            count_allocation(size);
        }
        return address;
    }
    // Takes the allocation at `address` back, unless there is anything unusual about it.
    bool give(const Heap &heap, uint64_t address, size_t size);
    // Like give(), but also accepts a block of unordered calls, or a large block.
    bool give_any(const Heap &heap, uint64_t address, size_t size) {
        return give(heap, address, size) || give_other_block(heap, address, size);
    }

    // Whether the magazine neither has nor would take back a block of that size.
    bool never_holds(size_t size) const {
        const uint64_t bytes = round_up(size, granule);
        return size > slab_limit &&
               !(unordered_blocks_ ? unordered_blocks_->accepts(bytes)
                                   : recent_.accepts(bytes) || repeated_.accepts(bytes));
    }
    bool keeps_recent(uint64_t bytes) const { return recent_.accepts(bytes); }

    // Whether a freed slot of that class has no room.
    bool is_full(unsigned index) const { return bins_[index].full(); }
    // Exchanges with its stream's depot: an empty bin for a batch, the older half of a full bin for
    // an empty batch.
    bool swap_in(unsigned index);
    bool swap_out(unsigned index);

    // --- with the pool's lock
    uint64_t idle_bytes() const; // to be taken again
    uint64_t quarantined_bytes() const;
    bool empty() const { return idle_bytes() == 0 && quarantined_bytes() == 0; }
    bool is_own() const; // of the calling thread
    bool is_of(const StreamPool &its_pool, uint64_t manager_identity) const {
        return &pool == &its_pool && manager_identity_ == manager_identity;
    }
    // Notes that a request of that size has found nothing while the magazine had no block at all.
    // If the size comes again, the magazine keeps blocks of that size.
    void note_miss(uint64_t bytes);
    // Whether the last request with no stream that had to ask the heap was of that size, too. If
    // sizes take turns, blocks that are taken ahead for one size go back for the next.
    bool misses_again(uint64_t bytes) {
        return unordered_blocks_ && unordered_blocks_->misses_again(bytes);
    }
    uint64_t largest_kept_block() const; // the size of the largest block kept for its size
    // Whether the magazine is empty, and its owner has made no call since it was last drained.
    bool is_unused() const;

    using Bins = std::array<Bin, slab_classes>;

    BiasedLock lock;
    const bool unordered;
    StreamPool &pool;
    ThreadCaches &caches;
    std::unique_ptr<PinnedCache> pinned; // once there is any

private:
    friend class ThreadCaches; // fills and empties the stores

    void count_allocation(size_t size) {
        const int64_t now = live_.get() + int64_t(size);
        allocations_.add(1);
        live_.set(now);
        if (const int64_t more = now - highest_.get(); more > 0) [[unlikely]] {
            highest_.set(now);
            counts_.raise(more);
        }
    }
    void count_free(uint64_t size) {
        frees_.add(1);
        live_.add(-int64_t(size));
    }
    uint64_t take_slot(size_t size) {
        Bin &bin = bins_[class_of(size)];
        const uint32_t n = bin.count.get();
        if (n == 0) {
            return 0;
        }
        const SlotAt entry = bin.slots[n - 1];
        bin.count.set(n - 1);
        entry.slot->loan.begin(size);
        return entry.address;
    }
    uint64_t take_newest_block(size_t size) {
        const RecentBlocks::Entry *entry = recent_.take_newest(round_up(size, granule));
        if (!entry) {
            return 0;
        }
        entry->block->loan.begin(size);
        return entry->address;
    }
    uint64_t take_block(size_t size);
    bool give_slot(uint64_t address, size_t size, Slot &slot);
    bool give_block(size_t size, Block &block);
    bool give_other_block(const Heap &heap, uint64_t address, size_t size);

    // The calls since the pool last added this magazine's counts to its own.
    Gauge<uint64_t> allocations_, frees_;
    Gauge<int64_t> live_;    // bytes allocated here less those freed here
    Gauge<int64_t> highest_; // the most that live_ has been

    // --- the stores
    Bins bins_;
    const std::unique_ptr<Bins> quarantine_; // only in the magazine of unordered calls
    Bin *const returns_;                     // where freed slots go: bins_, or the quarantine
    // A request for another size returns these blocks to the heap, so that they join their
    // neighbours before the heap looks for a best fit.
    RecentBlocks recent_;
    RepeatedBlocks repeated_;
    // In the magazine of unordered calls, instead of the two stores above; may be NULL.
    const std::unique_ptr<UnorderedBlocks> unordered_blocks_;

    // If the magazine's stream is unregistered: the stream's identity, the number of registrations
    // when the stream was last found to be unregistered, and the number of the last
    // call_for_events() after which the stream got an event.
    const uint64_t key_;
    uint64_t registrations_ = 0;
    uint64_t answered_ = 0;

    Counts &counts_; // of the pool
    const uint64_t manager_identity_;
    Depot &depot_; // of its free pool
    const Thread &owner_;
    Link<Magazine> of_manager_;
    Link<Magazine> active_; // linked: not parked
    bool drained_ = false;  // drained, and no slow call has filled it since
};

[[gnu::always_inline]] inline bool Magazine::give(const Heap &heap, uint64_t address, size_t size) {
    const BlockOrSlot allocation = heap.found_at(address);
    if (allocation.slot) {
        return give_slot(address, size, *allocation.slot);
    }
    return allocation.block && give_block(size, *allocation.block);
}

// Whether a free of `size` bytes (0: unknown) fits an allocation of `lent` bytes.
inline bool is_size_of(uint64_t lent, size_t size) {
    return lent != 0 && (size == lent || size == 0);
}

inline bool Magazine::give_slot(uint64_t address, size_t size, Slot &slot) {
    const uint64_t lent = slot.loan.plain_size();
    Bin &bin = returns_[slot.index];
    if (!is_size_of(lent, size) || bin.full()) {
        return false;
    }
    slot.loan.end();
    bin.push({address, &slot});
    count_free(lent);
    return true;
}

inline bool Magazine::give_block(size_t size, Block &block) {
    const uint64_t lent = block.loan.plain_size();
    if (!is_size_of(lent, size)) {
        return false;
    }
    if (!recent_.give(block)) {
        block.expect(); // the slow path, with the lock, reads its neighbours
        return false;
    }
    block.loan.end();
    count_free(lent);
    return true;
}

} // namespace emm::pool
