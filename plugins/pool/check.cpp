// Checks of the invariants. A build with -DEMM_POOL_CHECK runs them after calls, and a broken
// invariant becomes the call's error.
#include "manager.h"

#include <stdexcept>

namespace emm::pool {
namespace {

uint64_t taken_from(const Block &block) {
    if (block.state != State::slab) {
        return block.state == State::live ? block.size : 0;
    }
    uint64_t taken = 0;
    for (uint32_t i = 0; i < block.slab->count; i++) {
        taken += block.slab->slots[i].state == State::live ? block.slab->slot_size : 0;
    }
    return taken;
}

} // namespace

// Every byte of every segment is live, pending or cached, counted once.
std::string Manager::fault() const {
    uint64_t taken = 0, free = 0;
    for (const Segment *s = memory_.heap.first_segment(); s; s = memory_.heap.next_segment(*s)) {
        for (const Block *block = s->first; block; block = block->right) {
            const bool quarantined = block->state == State::free && block->dirty() &&
                                     block->pool->order != Order::stream;
            const uint64_t dirt = quarantined ? block->dirty_end - block->dirty_begin : 0;
            free += block->state == State::free ? block->size - dirt : 0;
            taken += taken_from(*block);
        }
    }
    if (!caches_.any_search() && taken != memory_.counts.taken()) {
        return "what is taken from the heap and the slabs is not what was counted";
    }
    if (!caches_.any_search() && free > holdings_.cached()) {
        return "free blocks are larger than the cached bytes counted";
    }
    std::string found = memory_.heap.fault();
    found = found.empty() ? caches_.fault() : found;
    return found.empty() ? pinned_.fault() : found;
}

void Manager::check_unlocked() {
#ifdef EMM_POOL_CHECK
    const Lock lock(served_.mutex);
    check();
#endif
}

void Manager::check() {
#ifdef EMM_POOL_CHECK
    if (const char *call = Mutex::offender) {
        throw std::logic_error(std::string("pool: ") + call + " was called under a lock");
    }
    constexpr uint64_t often = 64;
    if (const uint64_t calls = memory_.counts.allocations() + memory_.counts.frees();
        calls < often || calls % often == 0) {
        const std::string found = fault();
        if (!found.empty()) {
            throw std::logic_error("pool: " + found);
        }
    }
#endif
}

} // namespace emm::pool
