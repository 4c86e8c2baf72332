// The manager's part of the order of streams: the effect of completed work on memory, and further
// requests for memory. The pool's lock is held.
#pragma once

#include "stream_pool.h"

namespace emm::pool {

class FreedMemory {
public:
    // Frees the memory, for every user of the free pool.
    virtual void give(BlockOrSlot allocation, StreamPool &pool) = 0;
    // Freed, but unusable for every request until give_held().
    virtual void hold(BlockOrSlot allocation) = 0;
    virtual void give_held(BlockOrSlot allocation, StreamPool &pool) = 0;
    // Memory that `pool` freed with tags up to `tag` is complete.
    virtual void complete(StreamPool &pool, uint64_t tag) = 0;
    // The free pool's memory in the hands of threads returns to the heap, permanently.
    virtual void close_magazines(StreamPool &pool) = 0;
    // Slabs without an allocation go back to the heap; others serve every stream.
    virtual void drop_spares(StreamPool &pool) = 0;
    virtual void disband(StreamPool &pool) = 0;

protected:
    ~FreedMemory() = default;
};

} // namespace emm::pool
