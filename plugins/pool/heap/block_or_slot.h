// The memory of an allocation: a block of its own, or a slot of a slab.
#pragma once

#include "slab.h"

namespace emm::pool {

struct BlockOrSlot {
    Block *block = nullptr; // or
    Slot *slot = nullptr;

    explicit operator bool() const { return block || slot; }

    const Segment &segment() const { return *(block ? block : slot->slab->block)->segment; }
    uint64_t begin() const { return block ? block->begin : slot->slab->address(*slot); }
    uint64_t size() const { return block ? block->size : slot->slab->slot_size; }
    UseRecord *&uses() const { return block ? block->uses : slot->uses; }
    Capture *capture() const { return block ? block->capture : nullptr; }
    State &state() const { return block ? block->state : slot->state; }

    // The size that the program asked for; 0 while it holds nothing.
    uint64_t requested() const { return block ? block->loan.size() : slot->loan.size(); }
    void begin_loan(uint64_t size) const {
        block ? block->loan.begin(size) : slot->loan.begin(size);
    }
    void end_loan() const { block ? block->loan.end() : slot->loan.end(); }
    void mark_special() const { block ? block->loan.mark_special() : slot->loan.mark_special(); }
    void end_special() const { block ? block->loan.end_special() : slot->loan.end_special(); }
};

} // namespace emm::pool
