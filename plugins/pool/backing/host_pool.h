// Pinned host memory of one set of flags. The CPU may write to an allocation at once,
// so memory comes back only when the CPU has seen the work on it complete. Complete
// blocks of sizes in demand lie in lists, other complete memory in a heap. The rest waits in the
// free pools of its streams.
#pragma once

#include "heap/heap.h"
#include "policy/pinned.h"

#include <emm/plugin.h>

namespace emm::pool {

constexpr unsigned ready_classes = class_of(ready_limit) + 1;

constexpr uint64_t host_rounding(uint64_t size) {
    return size <= ready_limit ? class_size(class_of(size)) : round_up(size, segment_granule);
}

struct ReadyList {
    List<Block, &Block::pending> blocks;
    uint32_t questions = 0; // asked of the driver since this size last grew
    uint32_t growths = 0;   // growths that saved questions
};

struct HostPool {
    explicit HostPool(uint32_t host_flags) : flags(host_flags) {}

    bool is_portable() const { return flags & EMM_HOST_PORTABLE; }
    // A complete block for `size` bytes; NULL if there is none.
    Block *take(uint64_t size);
    Block *take_ready(uint64_t size) {
        return size <= ready_limit ? ready[class_of(size)].blocks.pop_front() : nullptr;
    }
    void give(Block &block); // the block is complete
    BlockOrSlot allocation_at(uint64_t address) const {
        const BlockOrSlot allocation = heap.starting_at(address);
        return allocation.block && allocation.block->loan.size() != 0 ? allocation : BlockOrSlot{};
    }
    List<Segment, &Segment::all> forget_all(); // the caller must free the returned segments
    // Moves ready blocks to the heap, where neighbours are joined.
    void clear_ready();

    // Whether questions have cost about as much as another block would.
    bool outgrown(uint64_t size) const;

    std::string fault() const; // the first broken invariant; empty if all hold

    const uint32_t flags;
    bool ragged = false; // the driver has given memory that is not aligned to 2 MiB
    FreePool complete{Order::anyone};
    TagClock clock; // always stands still
    Heap heap{complete, clock};
    ReadyList ready[ready_classes];
};

} // namespace emm::pool
