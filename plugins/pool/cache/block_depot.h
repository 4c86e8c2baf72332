// Blocks that were freed with no stream, on their way to the next request of just their size: first
// they wait for all work of the context, then they are complete. Meanwhile they are no part of the
// heap, so a pair of calls cuts and joins nothing there. The pool's lock protects it.
#pragma once

#include "heap/heap.h"
#include "policy/caches.h"

namespace emm::pool {

class BlockDepot {
public:
    // Holds at most `most` bytes.
    BlockDepot(Heap &heap, uint64_t most) : heap_(heap), most_(most) {}
    BlockDepot(const BlockDepot &) = delete;
    BlockDepot &operator=(const BlockDepot &) = delete;

    void set_most(uint64_t most) { most_ = most; } // blocks in the depot stay

    // Adds a block that waits for its work. False: the depot has too many blocks.
    bool put(Block &block);
    // Blocks put here with tags up to this one are complete. If `keep`, they can be taken again,
    // else they return to the heap.
    void complete(uint64_t tag, bool keep);
    Block *take(uint64_t size); // complete, and of just that size; NULL: there is none

    // Returns complete blocks to the heap. False: there were none.
    bool give_complete();
    // Frees waiting blocks into `unordered` now. Returns their bytes.
    uint64_t give_waiting(FreePool &unordered);
    void forget_memory(); // all of it has gone elsewhere

    uint64_t waiting_bytes() const { return waiting_bytes_; }
    uint32_t waiting_count() const { return waiting_count_; }
    uint64_t largest_complete() const; // block
    bool all_idle() const;             // whether every block here is as it should be

private:
    using Blocks = List<Block, &Block::pending>;
    struct Bin {
        uint64_t size = 0;
        Blocks blocks;
    };

    Bin *bin_for(uint64_t size);
    Block *next_waiting();

    Heap &heap_;
    uint64_t most_;
    Blocks waiting_; // oldest tag first
    Bin bins_[depot_sizes];
    uint64_t waiting_bytes_ = 0;
    uint64_t complete_bytes_ = 0;
    uint32_t waiting_count_ = 0;
    uint32_t complete_count_ = 0;
};

} // namespace emm::pool
