// Free slots of one class, outside their slabs: in a magazine, and in batches on the way between
// magazines.
#pragma once

#include "gauge.h"
#include "policy/caches.h"

#include <algorithm>
#include <memory>
#include <new>

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
    void forget_oldest(uint32_t number) {
        SlotAt *const all = slots.get(); // NULL if the bin was never filled
        std::copy(all + number, all + count.get(), all);
        count.add(-number);
    }
};

// Free slots of one class, moved as a unit, without a look at each slot.
struct Batch {
    Batch *next = nullptr;
    uint64_t tag = 0; // of its unordered free
    unsigned index = 0;
    uint32_t count = 0;
    SlotAt slots[most_slots_a_batch];

    uint64_t bytes() const { return count * class_size(index); }
    void fill(Bin &bin, unsigned its_class, uint32_t number) { // with the oldest of the bin
        index = its_class;
        count = number;
        std::copy_n(bin.slots.get(), number, slots);
        bin.forget_oldest(number);
    }
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

// Empty batches, to be used again.
class SpareBatches {
public:
    SpareBatches() = default;
    ~SpareBatches() {
        while (Batch *batch = take()) {
            delete batch;
        }
    }
    SpareBatches(const SpareBatches &) = delete;
    SpareBatches &operator=(const SpareBatches &) = delete;

    Batch *take() { // NULL: there is none
        Batch *batch = first_;
        first_ = batch ? batch->next : nullptr;
        return batch;
    }
    Batch *take_or_make() { // NULL without host memory
        Batch *batch = take();
        return batch ? batch : new (std::nothrow) Batch;
    }
    void give(Batch &batch) {
        batch.next = first_;
        first_ = &batch;
    }

private:
    Batch *first_ = nullptr;
};

} // namespace emm::pool
