// Blocks in and out of magazines.
#include "thread_caches.h"

namespace emm::pool {

// Blocks that no magazine has any more return to the heap.
void ThreadCaches::unload_blocks(Magazine &magazine) {
    StreamPool &pool = magazine.pool;
    uint64_t bytes = 0;
    uint32_t count = 0;
    const auto give_home = [&](Block &block, uint64_t size) {
        memory_.heap.give(block, pool);
        bytes += size;
        count++;
    };
    if (magazine.unordered_blocks_) {
        hand_over_blocks(magazine);
        magazine.unordered_blocks_->drain(give_home);
        memory_.counts.count_returned(bytes);
        block_depot_.give_complete();
        return;
    }
    magazine.recent_.drain(give_home);
    magazine.repeated_.drain(give_home);
    if (count > 0) {
        pool.count_frees(count);
        memory_.counts.count_returned(bytes);
        order_.mark_dirty(pool, bytes);
    }
}

// --- of calls without a stream -------------------------------------------------------------------

bool ThreadCaches::refill_blocks(Magazine &magazine, uint64_t bytes) {
    const auto from_depot = [&] { return block_depot_.take(bytes); };
    const bool any = add_blocks(magazine, bytes, UINT64_MAX, from_depot);
    if (!any) {
        unload_blocks(magazine);
    }
    return any;
}

bool ThreadCaches::make_room_for_block(Magazine &magazine, uint64_t bytes) {
    UnorderedBlocks *const own = magazine.unordered_blocks_.get();
    if (!own || !own->find(bytes)) {
        return false;
    }
    hand_over_blocks(magazine);
    return own->has_room_for(bytes);
}

// The magazine's unordered frees join those of other threads, and wait for the next event. The
// excess waits in the heap.
bool ThreadCaches::hand_over_blocks(Magazine &magazine) {
    UnorderedBlocks *const kept = magazine.unordered_blocks_.get();
    if (!kept || kept->freed_count.get() == 0) {
        return false;
    }
    StreamPool &unordered = order_.unordered();
    const uint32_t count = kept->freed_count.get();
    const uint64_t bytes = kept->freed_bytes.get();
    kept->drain_freed([&](Block &block) {
        if (block_depot_.put(block)) {
            handed_over_++;
            handed_over_bytes_ += block.size;
        } else {
            memory_.heap.give(block, unordered);
        }
    });
    memory_.counts.count_returned(bytes);
    order_.mark_dirty(unordered, bytes, count);
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

// Whether complete blocks may be kept: no thread looks for whole blocks, and some thread has a
// magazine of unordered calls.
bool ThreadCaches::keeps_complete_blocks() const {
    return totals_.searches == 0 && order_.common().magazines() > 0;
}

} // namespace emm::pool
