// One thread's stock of memory for one stream. Its owner takes from it and gives to it without a
// lock; the pool fills and empties it in batches. What lies in it counts as taken for the heap and
// the slabs, and as nobody's for the program.
//
// A stream's magazine takes back what was freed on the stream, and that may go out again at once.
// The magazine of calls without a stream hands out complete memory, and what it takes back waits in
// its quarantine for the next batch.
#pragma once

#include "domain.h"
#include "gate.h"
#include "heap.h"

#include <array>

namespace emm::pool {

class Manager;
class Thread;

class alignas(128) Magazine {
public:
    static constexpr uint32_t most_blocks = 4;

    Magazine(Manager &manager, uint64_t manager_identity, Domain &domain, const Thread &owner,
             uint64_t largest_block);

    // --- by its owner, inside the gate
    // The address of memory for `size` bytes, or 0: nothing here fits.
    uint64_t take(size_t size) {
        const uint64_t address =
            size - 1 < slab_limit ? take_slot(size) : take_block(round_up(size, granule), size);
        if (address != 0) {
            count_allocation(size);
        }
        return address;
    }
    // Takes the allocation at `address` back, unless there is anything unusual about it.
    bool give(const Heap &heap, uint64_t address, size_t size);

    // --- by its owner, with the pool's lock or inside the gate
    void count_allocation(size_t size) {
        allocations.add(1);
        live.add(int64_t(size));
        if (live.get() > highest.get()) {
            highest.set(live.get());
        }
    }
    void count_free(uint64_t size) {
        frees.add(1);
        live.add(-int64_t(size));
    }

    // --- for whoever has the pool's lock
    uint64_t idle_bytes() const; // to be taken again
    uint64_t quarantined_bytes() const;
    bool empty() const { return idle_bytes() == 0 && quarantined_bytes() == 0; }

    Gate gate;
    const bool unordered;
    const uint64_t largest_block; // to keep

    // Since the pool has taken them over the last time.
    Gauge<uint64_t> allocations, frees;
    Gauge<int64_t> live;    // bytes allocated here less those freed here
    Gauge<int64_t> highest; // that it has been

    using Bins = std::array<Bin, slab_classes>;
    Bins bins;
    const std::unique_ptr<Bins> quarantine; // of the unordered one

    // Beyond slots: the last few freed, for requests of just their size. Any other request sends
    // them home first, so that they join their neighbours before a best fit is looked for.
    struct LooseBlock {
        uint64_t address;
        uint64_t size;
        Block *block;
    };
    LooseBlock blocks[most_blocks];
    Gauge<uint32_t> block_count;
    Gauge<uint64_t> block_bytes;

    // Of a stream that nobody registered.
    const uint64_t key;         // its identity
    uint64_t registrations = 0; // the last at which it was none of them
    uint64_t answered = 0;      // the last call for events that it has heard

    Manager &manager;
    const uint64_t manager_identity;
    Domain &domain;
    const Thread &owner;
    Link<Magazine> of_manager;

private:
    uint64_t take_slot(size_t size) {
        Bin &bin = bins[class_of(size)];
        const uint32_t n = bin.count.get();
        if (n == 0) {
            return 0;
        }
        const SlotAt entry = bin.slots[n - 1];
        bin.count.set(n - 1);
        entry.slot->loan.begin(size);
        return entry.address;
    }
    uint64_t take_block(uint64_t bytes, size_t size);
    bool give_slot(uint64_t address, Slot &slot);
    bool give_block(Block &block);

    Bin *const returns_; // where freed slots go: bins, or the quarantine
};

inline bool Magazine::give(const Heap &heap, uint64_t address, size_t size) {
    const Heap::Place place = heap.found_at(address);
    const uint64_t lent = place.slot    ? place.slot->loan.plain_size()
                          : place.block ? place.block->loan.plain_size()
                                        : 0;
    if (lent == 0 || (size != 0 && size != lent)) {
        return false;
    }
    const bool done = place.slot ? give_slot(address, *place.slot) : give_block(*place.block);
    if (done) {
        count_free(lent);
    }
    return done;
}

inline bool Magazine::give_slot(uint64_t address, Slot &slot) {
    Bin &bin = returns_[slot.index];
    if (bin.full()) {
        return false;
    }
    slot.loan.end();
    bin.push({address, &slot});
    return true;
}

} // namespace emm::pool
