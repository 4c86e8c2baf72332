// Pinned memory in magazines.
#include "pinned_memory.h"

#include <new>

namespace emm::pool {

// --- without the lock ----------------------------------------------------------------------------

Block *PinnedMemory::take_from_magazine(uint32_t flags, size_t size) const {
    const HostPool *pool = known(flags);
    Magazine *magazine =
        Thread::magazine_for(serving_.load(std::memory_order_relaxed), EMM_STREAM_UNORDERED);
    if (!magazine || size > ready_limit || !caches_.enter(*magazine)) {
        return nullptr;
    }
    Block *block = magazine->pinned ? magazine->pinned->take(pool, size) : nullptr;
    magazine->lock.leave();
    return block;
}

bool PinnedMemory::give_to_magazine(uint32_t flags, uint64_t host, size_t size,
                                    emm_stream stream) const {
    const HostPool *pool = known(flags);
    Magazine *magazine =
        pool ? Thread::magazine_for(serving_.load(std::memory_order_relaxed), stream) : nullptr;
    if (!magazine || !caches_.enter(*magazine)) {
        return false;
    }
    Block *block = magazine->pinned ? pool->heap.found_at(host).block : nullptr;
    const bool done = block && magazine->pinned->give(*block, size);
    magazine->lock.leave();
    return done;
}

// --- with the lock -------------------------------------------------------------------------------

// The calling thread's magazine, with room for pinned memory; NULL if it can have none.
Magazine *PinnedMemory::magazine_for(emm_stream stream, StreamPool &stream_pool) {
    Magazine *magazine = context_.serves() ? caches_.own(stream, stream_pool) : nullptr;
    if (magazine && !magazine->pinned) {
        magazine->pinned.reset(new (std::nothrow) PinnedCache);
    }
    return magazine && magazine->pinned ? magazine : nullptr;
}

// Takes more blocks of the size that was just taken from a list.
void PinnedMemory::refill(HostPool &pool, size_t size) {
    Magazine *magazine = magazine_for(EMM_STREAM_UNORDERED, order_.common());
    if (!magazine || !magazine->pinned->kept) {
        return;
    }
    const unsigned index = class_of(size);
    PinnedCache::Bin &bin = magazine->pinned->bin_for(index);
    if (!bin.holds(&pool, index)) {
        empty_bin(bin);
        bin.pool = &pool;
        bin.index = index;
    }
    while (bin.count.get() < blocks_in_a_pinned_bin(class_size(index))) {
        Block *block = pool.take_ready(size);
        if (!block) {
            return;
        }
        block->state = State::live;
        taken_ += block->size;
        bin.blocks[bin.count.get()] = block;
        bin.count.add(1);
    }
}

void PinnedMemory::empty_bin(PinnedCache::Bin &bin) {
    for (uint32_t i = 0; i < bin.count.get(); i++) {
        Block &block = *bin.blocks[i];
        block.state = State::waiting;
        taken_ -= block.size;
        bin.pool->give(block);
    }
    bin.count.set(0);
}

void PinnedMemory::hand_over(emm_stream stream, StreamPool &stream_pool) {
    if (Magazine *magazine = magazine_for(stream, stream_pool)) {
        hand_over(*magazine);
    }
}

// Freed blocks go to the free pool whose work is asked about.
void PinnedMemory::hand_over(Magazine &magazine) {
    PinnedCache &cache = *magazine.pinned;
    const uint32_t count = cache.freed_count.get();
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        Block &block = *cache.freed[i];
        bytes += block.size;
        keep_until_complete(block, magazine.unordered ? unordered_pool(block) : magazine.pool);
    }
    if (count > 0 && magazine.unordered) { // the kinds need not be told apart
        order_.mark_dirty(order_.unordered(), bytes);
        order_.mark_dirty(order_.cross_context(), bytes);
    } else if (count > 0) {
        order_.mark_dirty(magazine.pool, bytes, count);
    }
    taken_ -= bytes;
    cache.freed_count.set(0);
}

void PinnedMemory::drain_pinned(Magazine &magazine) {
    if (!magazine.pinned) {
        return;
    }
    hand_over(magazine);
    for (PinnedCache::Bin &bin : magazine.pinned->ready) {
        empty_bin(bin);
    }
    live_ += uint64_t(magazine.pinned->live.get());
    magazine.pinned->live.set(0);
}

void PinnedMemory::hand_over_own_magazines() {
    caches_.each([this](Magazine &m) {
        if (m.is_own() && m.pinned) {
            hand_over(m);
        }
    });
}

// Takes the blocks that other threads keep. From then on those threads keep none, because they
// would only pass blocks back and forth. False: there were none.
bool PinnedMemory::fetch_from_threads() {
    bool any = false;
    caches_.each([&](const Magazine &m) { any = any || (m.pinned && !m.pinned->empty()); });
    if (any) {
        caches_.shut();
        caches_.each([this](Magazine &m) {
            if (m.pinned && !m.pinned->empty()) {
                m.pinned->kept = m.pinned->kept && m.is_own();
                drain_pinned(m);
            }
        });
        caches_.reopen();
    }
    return any;
}

// Briefly below 0 if one thread allocated a block and another freed it.
uint64_t PinnedMemory::live() const {
    uint64_t live = live_;
    caches_.each([&](const Magazine &m) { live += m.pinned ? uint64_t(m.pinned->live.get()) : 0; });
    return int64_t(live) < 0 ? 0 : live;
}

} // namespace emm::pool
