// The invariants, verified. A build with -DEMM_POOL_CHECK looks at them after calls, and a broken
// one becomes the call's error.
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

// What lies in magazines and batches is taken, of the right class, and nobody's.
bool are_idle(const SlotAt *slots, uint32_t count, unsigned index) {
    for (uint32_t i = 0; i < count; i++) {
        const Slot &slot = *slots[i].slot;
        if (slot.state != State::live || slot.loan.size() != 0 || slot.index != index ||
            slot.uses || slot.slab->address(slot) != slots[i].address) {
            return false;
        }
    }
    return true;
}

bool are_idle(const Magazine::Bins &bins) {
    for (unsigned i = 0; i < slab_classes; i++) {
        if (bins[i].count.get() > bins[i].limit ||
            !are_idle(bins[i].slots.get(), bins[i].count.get(), i)) {
            return false;
        }
    }
    return true;
}

bool are_idle(const Batch *batch) {
    for (; batch; batch = batch->next) {
        if (batch->count > Batch::most || !are_idle(batch->slots, batch->count, batch->index)) {
            return false;
        }
    }
    return true;
}

bool lies_idle(const Block &block) {
    return block.state == State::live && block.loan.size() == 0 && !block.capture && !block.uses;
}

bool are_idle(const PinnedStock &stock) {
    bool idle = true;
    for (const PinnedStock::Bin &bin : stock.ready) {
        for (uint32_t i = 0; i < bin.count.get(); i++) {
            const Block &block = *bin.blocks[i];
            idle = idle && lies_idle(block) && block.host == bin.pool &&
                   block.size == class_size(bin.index);
        }
    }
    for (uint32_t i = 0; i < stock.freed_count.get(); i++) {
        idle = idle && lies_idle(*stock.freed[i]) && stock.freed[i]->host;
    }
    return idle;
}

// Blocks that are only just being taken have no pool yet.
uint64_t taken_from(const HostPool &pool) {
    uint64_t taken = 0;
    for (const Segment *s = pool.heap.first_segment(); s; s = pool.heap.next_segment(*s)) {
        for (const Block *block = s->first; block; block = block->right) {
            taken += block->state == State::live && block->host ? block->size : 0;
        }
    }
    return taken;
}

} // namespace

// Of magazines only the calling thread's can be looked into.
std::string Manager::fault_of_magazines() const {
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        const std::lock_guard lock(m->shelf.mutex);
        for (const Batch *batch : m->shelf.batches) {
            if (!are_idle(batch)) {
                return "a shelf holds what is in use";
            }
        }
        if (&m->owner != Thread::self_if_any()) {
            continue;
        }
        bool idle = are_idle(m->bins) && (!m->quarantine || are_idle(*m->quarantine)) &&
                    (!m->pinned || are_idle(*m->pinned));
        for (uint32_t i = 0; i < m->block_count.get(); i++) {
            const Block &block = *m->blocks[i].block;
            idle = idle && lies_idle(block) && block.size == m->blocks[i].size;
        }
        if (!idle) {
            return "a magazine holds what is in use";
        }
    }
    return are_idle(quarantine_.first) ? "" : "the quarantine holds what is in use";
}

// Every byte of every segment is live, pending or cached, counted once.
std::string Manager::fault() const {
    uint64_t taken = 0, free = 0;
    for (const Segment *s = heap_.first_segment(); s; s = heap_.next_segment(*s)) {
        for (const Block *block = s->first; block; block = block->right) {
            const bool quarantined = block->state == State::free && block->dirty() &&
                                     block->domain->order != Order::stream;
            const uint64_t dirt = quarantined ? block->dirty_end - block->dirty_begin : 0;
            free += block->state == State::free ? block->size - dirt : 0;
            taken += taken_from(*block);
        }
    }
    if (acquiring_ == 0 && taken != taken_) {
        return "what is taken from the heap and the slabs is not what was counted";
    }
    if (acquiring_ == 0 && free > cached_bytes()) {
        return "free blocks are larger than the cached bytes counted";
    }
    std::string found = heap_.fault();
    found = found.empty() ? fault_of_magazines() : found;
    uint64_t pinned = 0;
    for (const auto &pool : hosts_) {
        found = pool && found.empty() ? pool->fault() : found;
        pinned += pool ? taken_from(*pool) : 0;
    }
    if (found.empty() && pinned != host_taken_) {
        return "the pinned memory that is taken is not what was counted";
    }
    return found;
}

void Manager::check() {
#ifdef EMM_POOL_CHECK
    if (const char *call = Mutex::offender) {
        throw std::logic_error(std::string("pool: ") + call + " was called under a lock");
    }
    constexpr uint64_t often = 64;
    if (const uint64_t calls = allocations_ + frees_; calls < often || calls % often == 0) {
        const std::string found = fault();
        if (!found.empty()) {
            throw std::logic_error("pool: " + found);
        }
    }
#endif
}

} // namespace emm::pool
