// The device memory of a pool, as it is cut into blocks and slots, and what is taken of it.
#pragma once

#include "counts.h"
#include "slabs.h"

namespace emm::pool {

struct DeviceMemory {
    // `common` is the pool of what is complete.
    DeviceMemory(FreePool &common, const TagClock &clock) : heap(common, clock) {}

    Heap heap;                      // every call reads its map of addresses,
    alignas(128) Slabs slabs{heap}; // and nothing that calls write lies beside that
    Counts counts;
};

} // namespace emm::pool
