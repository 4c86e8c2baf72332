// Pinned memory in magazines: the short way of host.cpp, with no lock.
#include "manager.h"

namespace emm::pool {

// --- the short way -------------------------------------------------------------------------------

Block *Manager::take_pinned_at_once(const HostPool *pool, size_t size) const {
    Magazine *magazine =
        Thread::magazine_for(serving_.load(std::memory_order_relaxed), EMM_STREAM_UNORDERED);
    if (!magazine || size > shelf_limit || !magazine->lock.enter()) {
        return nullptr;
    }
    Block *block = magazine->pinned ? magazine->pinned->take(pool, size) : nullptr;
    magazine->lock.leave();
    return block;
}

bool Manager::give_pinned_at_once(const HostPool &pool, uint64_t host, size_t size,
                                  emm_stream stream) const {
    Magazine *magazine = Thread::magazine_for(serving_.load(std::memory_order_relaxed), stream);
    if (!magazine || !magazine->lock.enter()) {
        return false;
    }
    Block *block = magazine->pinned ? pool.heap.found_at(host).block : nullptr;
    const bool done = block && magazine->pinned->give(*block, size);
    magazine->lock.leave();
    return done;
}

// --- with the lock -------------------------------------------------------------------------------

// The calling thread's stock for a stream, NULL if it can have none.
Magazine *Manager::stocked_magazine(emm_stream stream, StreamPool &stream_pool) {
    Magazine *magazine = served_.serves() ? caches_.own(stream, stream_pool) : nullptr;
    if (magazine && !magazine->pinned) {
        magazine->pinned.reset(new (std::nothrow) PinnedCache);
    }
    return magazine && magazine->pinned ? magazine : nullptr;
}

// More of what has just been taken off a shelf.
void Manager::restock_pinned(HostPool &pool, size_t size) {
    Magazine *magazine = stocked_magazine(EMM_STREAM_UNORDERED, order_.common());
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
    while (bin.count.get() < PinnedCache::capacity(class_size(index))) {
        Block *block = pool.take_shelved(size);
        if (!block) {
            return;
        }
        block->state = State::live;
        host_taken_ += block->size;
        bin.blocks[bin.count.get()] = block;
        bin.count.add(1);
    }
}

void Manager::empty_bin(PinnedCache::Bin &bin) {
    for (uint32_t i = 0; i < bin.count.get(); i++) {
        Block &block = *bin.blocks[i];
        block.state = State::waiting;
        host_taken_ -= block.size;
        bin.pool->give(block);
    }
    bin.count.set(0);
}

// What was freed goes where its stream's work is asked about.
void Manager::hand_over_pinned(Magazine &magazine) {
    PinnedCache &stock = *magazine.pinned;
    const uint32_t count = stock.freed_count.get();
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        Block &block = *stock.freed[i];
        bytes += block.size;
        put_off(block, magazine.unordered ? unordered_pool(*block.host) : magazine.pool);
    }
    if (count > 0 && magazine.unordered) { // of which kind they were does not matter
        order_.mark_dirty(order_.unordered(), bytes);
        order_.mark_dirty(order_.cross_context(), bytes);
    } else if (count > 0) {
        order_.mark_dirty(magazine.pool, bytes, count);
    }
    host_taken_ -= bytes;
    stock.freed_count.set(0);
}

// Until the work that was on its stream, or everywhere, has been seen complete.
void Manager::put_off(Block &block, StreamPool &stream_pool) {
    block.state = State::waiting;
    block.tag = clock_.now();
    host_waiting_ += block.size;
    stream_pool.pinned.push_back(block);
}

void Manager::drain_pinned(Magazine &magazine) {
    if (!magazine.pinned) {
        return;
    }
    hand_over_pinned(magazine);
    for (PinnedCache::Bin &bin : magazine.pinned->ready) {
        empty_bin(bin);
    }
    host_live_ += uint64_t(magazine.pinned->live.get());
    magazine.pinned->live.set(0);
}

void Manager::hand_over_own_pinned() {
    caches_.each([this](Magazine &m) {
        if (m.is_own() && m.pinned) {
            hand_over_pinned(m);
        }
    });
}

// What other threads keep, which they do no more from then on: they would only pass it to and fro.
// False: there was nothing.
bool Manager::fetch_pinned() {
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

// Below 0 for a moment if a block was allocated by one thread and freed by another.
uint64_t Manager::host_live() const {
    uint64_t live = host_live_;
    caches_.each([&](const Magazine &m) { live += m.pinned ? uint64_t(m.pinned->live.get()) : 0; });
    return int64_t(live) < 0 ? 0 : live;
}

} // namespace emm::pool
