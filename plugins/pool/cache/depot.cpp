#include "depot.h"

namespace emm::pool {

uint32_t Depot::waiting(unsigned index) const {
    const std::lock_guard lock(mutex_);
    return batches_[index] ? batches_[index]->count : 0;
}

bool Depot::swap_in(Bin &bin, unsigned index) {
    if (bin.count.get() > 0) {
        return false;
    }
    const std::lock_guard lock(mutex_);
    Batch *batch = take_batch(index, bin.limit);
    if (batch) {
        std::copy_n(batch->slots, batch->count, bin.slots.get());
        bin.count.set(batch->count);
        spares_.give(*batch);
    }
    return batch;
}

bool Depot::swap_out(Bin &bin, unsigned index, uint32_t count) {
    const std::lock_guard lock(mutex_);
    Batch *batch = may_put(count * class_size(index)) ? spares_.take() : nullptr;
    if (batch) {
        batch->fill(bin, index, count);
        put_batch(*batch);
    }
    return batch;
}

bool Depot::unload(Bin &bin, unsigned index, uint32_t count, SpareBatches &spares) {
    const std::lock_guard lock(mutex_);
    Batch *batch = may_put(count * class_size(index)) ? spare(spares) : nullptr;
    if (batch) {
        batch->fill(bin, index, count);
        put_batch(*batch);
    }
    return batch;
}

Batch *Depot::make_batch(Bin &bin, unsigned index, uint32_t count, SpareBatches &spares) {
    const std::lock_guard lock(mutex_);
    Batch *batch = spare(spares);
    if (batch) {
        batch->fill(bin, index, count);
    }
    return batch;
}

bool Depot::put(Batch &batch) {
    const std::lock_guard lock(mutex_);
    const bool may = may_put(batch.bytes());
    if (may) {
        put_batch(batch);
    }
    return may;
}

// An empty batch: one that swaps have emptied, or another one. NULL: no host memory.
Batch *Depot::spare(SpareBatches &others) {
    Batch *batch = spares_.take();
    return batch ? batch : others.take_or_make();
}

// False: the depot is full, or a thread looks for whole blocks.
bool Depot::may_put(uint64_t bytes) const {
    return totals_.searches.load(std::memory_order_relaxed) == 0 && bytes_ + bytes <= most_in_depot;
}

void Depot::put_batch(Batch &batch) {
    batch.next = batches_[batch.index];
    batches_[batch.index] = &batch;
    bytes_ += batch.bytes();
    totals_.bytes.fetch_add(batch.bytes(), std::memory_order_relaxed);
}

// A batch of at most `most` slots, or NULL.
Batch *Depot::take_batch(unsigned index, uint32_t most) {
    Batch *batch = batches_[index];
    if (!batch || batch->count > most) {
        return nullptr;
    }
    batches_[index] = batch->next;
    bytes_ -= batch->bytes();
    totals_.bytes.fetch_sub(batch->bytes(), std::memory_order_relaxed);
    return batch;
}

} // namespace emm::pool
