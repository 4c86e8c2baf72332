// The depot of a stream: batches on their way from one thread's magazine to another's. A thread
// swaps with it inside its magazine's lock and without the pool's, so a depot has a lock of its
// own, within which no other is taken.
#pragma once

#include "batch.h"
#include "cuda/lock.h"

#include <atomic>

namespace emm::pool {

// State that all depots of a pool share.
struct DepotTotals {
    alignas(128) std::atomic<uint64_t> bytes{0};
    // Threads that look for whole blocks. Meanwhile depots take no more.
    alignas(128) std::atomic<uint32_t> searches{0};
};

class Depot {
public:
    explicit Depot(DepotTotals &totals) : totals_(totals) {}

    // How many slots the next batch has.
    uint32_t waiting(unsigned index) const;
    // Fills an empty bin. By its owner inside the magazine's lock, or with the pool's lock.
    bool swap_in(Bin &bin, unsigned index);
    // Takes the `count` oldest slots, if there is an empty batch for them.
    bool swap_out(Bin &bin, unsigned index, uint32_t count);

    // --- with the pool's lock ---
    // Like swap_out, but takes a batch from `spares` if necessary.
    bool unload(Bin &bin, unsigned index, uint32_t count, SpareBatches &spares);
    // The `count` oldest slots as a batch that is the caller's; NULL without host memory.
    Batch *make_batch(Bin &bin, unsigned index, uint32_t count, SpareBatches &spares);
    bool put(Batch &batch); // false: the depot may not take it
    template <class Function> void clear(Function give, SpareBatches &spares) {
        const std::lock_guard lock(mutex_);
        for (unsigned i = 0; i < slab_classes; i++) {
            while (Batch *batch = take_batch(i, most_slots_a_batch)) {
                give(*batch);
                spares.give(*batch);
            }
        }
        while (Batch *batch = spares_.take()) {
            spares.give(*batch);
        }
    }
    template <class Function> bool all_batches(Function holds) const {
        const std::lock_guard lock(mutex_);
        return std::all_of(batches_, batches_ + slab_classes, holds);
    }

private:
    // These with the depot's lock.
    bool may_put(uint64_t bytes) const;
    void put_batch(Batch &batch);
    Batch *take_batch(unsigned index, uint32_t most);
    Batch *spare(SpareBatches &others);

    DepotTotals &totals_;
    mutable Mutex mutex_;
    Batch *batches_[slab_classes] = {};
    SpareBatches spares_; // for the next swap
    uint64_t bytes_ = 0;
};

} // namespace emm::pool
