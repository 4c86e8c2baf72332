// The invariants of what threads keep.
#include "thread_caches.h"

namespace emm::pool {
namespace {

// Slots in magazines and batches are taken, of the right class, and not the program's.
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
        if (batch->count > most_slots_a_batch ||
            !are_idle(batch->slots, batch->count, batch->index)) {
            return false;
        }
    }
    return true;
}

bool lies_idle(const Block &block) {
    return block.state == State::live && block.loan.size() == 0 && !block.capture && !block.uses;
}

bool are_idle(const UnorderedBlocks &kept) {
    uint64_t bytes = 0;
    bool idle = true;
    for (const UnorderedBlocks::Bin &bin : kept.bins) {
        for (uint32_t i = 0; i < bin.count.get(); i++) {
            idle = idle && lies_idle(*bin.blocks[i]) && bin.blocks[i]->size == bin.size;
        }
    }
    for (uint32_t i = 0; i < kept.freed_count.get(); i++) {
        idle = idle && lies_idle(*kept.freed[i]);
        bytes += kept.freed[i]->size;
    }
    return idle && bytes == kept.freed_bytes.get();
}

bool are_idle(const PinnedCache &pinned) {
    bool idle = true;
    for (const PinnedCache::Bin &bin : pinned.ready) {
        for (uint32_t i = 0; i < bin.count.get(); i++) {
            const Block &block = *bin.blocks[i];
            idle = idle && lies_idle(block) && block.host == bin.pool &&
                   block.size == class_size(bin.index);
        }
    }
    for (uint32_t i = 0; i < pinned.freed_count.get(); i++) {
        idle = idle && lies_idle(*pinned.freed[i]) && pinned.freed[i]->host;
    }
    return idle;
}

} // namespace

// Only the calling thread's magazines can be checked.
std::string ThreadCaches::fault() const {
    for (Magazine *m = magazines_.first(); m; m = magazines_.next(*m)) {
        if (!m->depot_.all_batches([](const Batch *batch) { return are_idle(batch); })) {
            return "a depot holds what is in use";
        }
        if (!m->active_.linked && !m->is_unused()) {
            return "a parked magazine holds something";
        }
        if (!m->is_own()) {
            continue;
        }
        bool idle = are_idle(m->bins_) && (!m->quarantine_ || are_idle(*m->quarantine_)) &&
                    (!m->unordered_blocks_ || are_idle(*m->unordered_blocks_)) &&
                    (!m->pinned || are_idle(*m->pinned));
        const auto look = [&](const Block &block, uint64_t size) {
            idle = idle && lies_idle(block) && block.size == size;
        };
        m->recent_.each(look);
        m->repeated_.each(look);
        if (!idle) {
            return "a magazine holds what is in use";
        }
    }
    if (!block_depot_.all_idle()) {
        return "the blocks between magazines are not what was counted, or in use";
    }
    return are_idle(quarantine_.first) ? "" : "the quarantine holds what is in use";
}

} // namespace emm::pool
