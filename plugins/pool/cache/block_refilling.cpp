// Blocks in and out of magazines.
#include "thread_caches.h"

namespace emm::pool {

// Blocks that no magazine has any more go home.
void ThreadCaches::give_blocks(Block *const *blocks, uint32_t count, StreamPool &pool) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += blocks[i]->size;
        memory_.heap.give(*blocks[i], pool);
    }
    memory_.counts.count_returned(bytes);
}

void ThreadCaches::unload_blocks(Magazine &magazine) {
    StreamPool &pool = magazine.pool;
    Magazine::LargeBlocks &large = magazine.large_;
    const uint32_t small_count = magazine.block_count_.get();
    const uint32_t count = small_count + large.count.get();
    const uint64_t bytes = magazine.block_bytes_.get() + large.idle_bytes();
    if (magazine.unordered_blocks_) {
        hand_over_blocks(magazine);
        for (UnorderedBlocks::Bin &bin : magazine.unordered_blocks_->bins) {
            give_blocks(bin.blocks, bin.count.get(), pool);
            bin.count.set(0);
        }
        block_depot_.give_complete();
    }
    if (count == 0) {
        return;
    }
    for (uint32_t i = 0; i < small_count; i++) {
        memory_.heap.give(*magazine.blocks_[i].block, pool);
    }
    for (uint32_t i = 0; i < large.count.get(); i++) {
        memory_.heap.give(*large.blocks[i], pool);
    }
    pool.count_frees(count);
    memory_.counts.count_returned(bytes);
    order_.mark_dirty(pool, bytes);
    magazine.block_count_.set(0);
    magazine.block_bytes_.set(0);
    large.count.set(0);
}

// --- of calls without a stream -------------------------------------------------------------------

bool ThreadCaches::refill_blocks(Magazine &magazine, uint64_t bytes) {
    UnorderedBlocks *const own = magazine.unordered_blocks_.get();
    if (!own) {
        unload_blocks(magazine);
        return false;
    }
    UnorderedBlocks::Bin *bin = own->find(bytes);
    uint32_t count = bin ? bin->count.get() : 0;
    while (bin && count < own->most_of(bytes)) {
        Block *block = block_depot_.take(bytes);
        if (!block) {
            break;
        }
        memory_.counts.count_taken(bytes);
        bin->blocks[count++] = block;
    }
    if (count == 0) {
        unload_blocks(magazine);
        return false;
    }
    bin->count.set(count);
    return true;
}

bool ThreadCaches::make_room_for_block(Magazine &magazine, uint64_t bytes) {
    UnorderedBlocks *const own = magazine.unordered_blocks_.get();
    if (!own || !own->find(bytes)) {
        return false;
    }
    hand_over_blocks(magazine);
    return own->can_take_back(bytes);
}

// What was freed waits with what other threads have freed, for an event from now on; what is too
// much does so in the heap.
bool ThreadCaches::hand_over_blocks(Magazine &magazine) {
    UnorderedBlocks *const kept = magazine.unordered_blocks_.get();
    if (!kept || kept->freed_count.get() == 0) {
        return false;
    }
    UnorderedBlocks &own = *kept;
    StreamPool &unordered = order_.unordered();
    const uint32_t count = own.freed_count.get();
    const uint64_t bytes = own.freed_bytes.get();
    for (uint32_t i = 0; i < count; i++) {
        Block &block = *own.freed[i];
        if (block_depot_.put(block)) {
            handed_over_++;
            handed_over_bytes_ += block.size;
        } else {
            memory_.heap.give(block, unordered);
        }
    }
    memory_.counts.count_returned(bytes);
    order_.mark_dirty(unordered, bytes, count);
    own.freed_count.set(0);
    own.freed_bytes.set(0);
    return true;
}

bool ThreadCaches::takes_batch() {
    const bool batch = is_a_batch(handed_over_, handed_over_bytes_, limit_);
    if (batch) {
        handed_over_ = 0;
        handed_over_bytes_ = 0;
    }
    return batch;
}

bool ThreadCaches::asks_about_blocks(const Magazine &magazine, uint64_t bytes) {
    const bool kept = magazine.unordered_blocks_ && magazine.unordered_blocks_->find(bytes);
    const bool asks =
        kept && !asked_ &&
        is_a_batch(block_depot_.waiting_count(), block_depot_.waiting_bytes(), limit_);
    asked_ = asked_ || asks;
    return asks;
}

void ThreadCaches::give_up_waiting_blocks() {
    StreamPool &unordered = order_.unordered();
    if (const uint64_t bytes = block_depot_.give_waiting(unordered)) {
        order_.mark_dirty(unordered, bytes, 0);
    }
}

// Not while a thread looks for whole blocks, nor for threads that are gone.
bool ThreadCaches::keeps_complete_blocks() const {
    return totals_.searches == 0 && order_.common().magazines() > 0;
}

} // namespace emm::pool
