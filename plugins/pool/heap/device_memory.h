// The device memory of a pool, cut into blocks and slots, and the counts of memory taken.
#pragma once

#include "counts.h"
#include "slabs.h"

namespace emm::pool {

struct DeviceMemory {
    // `common` is the pool of complete memory.
    DeviceMemory(FreePool &common, const TagClock &clock) : heap(common, clock) {}

    Heap heap;                      // every call reads its map of addresses,
    alignas(128) Slabs slabs{heap}; // and no member that calls write is near
    Counts counts;
};

} // namespace emm::pool
