// Free slots of one class, outside their slabs: in a magazine, and in batches on the way between
// magazines.
#pragma once

#include "cuda/lock.h"
#include "gauge.h"
#include "heap/slab.h"

#include <memory>

namespace emm::pool {

struct SlotAt {
    uint64_t address;
    Slot *slot;
};

// Newest last.
struct Bin {
    Gauge<uint32_t> count;
    uint32_t limit = 0;
    std::unique_ptr<SlotAt[]> slots;

    bool full() const { return count.get() == limit; }
    void push(SlotAt slot) {
        const uint32_t n = count.get();
        slots[n] = slot;
        count.set(n + 1);
    }
};

// What one magazine had too much of and another will take, without a look at each slot.
struct Batch {
    static constexpr uint32_t most = 64;
    Batch *next = nullptr;
    uint64_t tag = 0; // of its unordered free
    unsigned index = 0;
    uint32_t count = 0;
    SlotAt slots[most];

    uint64_t bytes() const { return count * class_size(index); }
};

// The batches of one stream on their way from magazine to magazine. A thread swaps with it inside
// its magazine's gate and without the pool's lock, so it has a lock of its own, within which no
// other is taken.
struct SlotShelf {
    Mutex mutex;
    Batch *batches[slab_classes] = {};
    Batch *spares = nullptr; // empty ones, for who swaps next
    uint64_t bytes = 0;
};

// Batches in the order that they came in.
struct BatchQueue {
    Batch *first = nullptr;
    Batch *last = nullptr;

    void push(Batch &batch) {
        batch.next = nullptr;
        (last ? last->next : first) = &batch;
        last = &batch;
    }
    Batch *pop() {
        Batch *batch = first;
        first = batch->next;
        last = first ? last : nullptr;
        return batch;
    }
};

} // namespace emm::pool
