#pragma once

#include "store.h"

#include <cuda.h>
#include <vector>

namespace simcuda {

struct Device;

// Physical memory. It lives as long as a handle, a mapping, or a descriptor in some process.
struct Physical {
    CUmemGenericAllocationHandle handle = 0; // 0 once all handles are released
    uint64_t id = 0;
    Store *store = nullptr;
    Device *device = nullptr;
    uint64_t offset = 0, size = 0;
    CUmemAllocationProp properties = {};
    unsigned references = 0, mappings = 0;
    std::vector<int> keeps; // of the descriptors that were given out
    int held = -1;          // of imported memory: keeps the exporter from taking it back
};

unsigned handle_types_of(const Physical &physical);
void end_mapping(Physical &physical);

} // namespace simcuda
