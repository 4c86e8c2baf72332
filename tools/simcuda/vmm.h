#pragma once

#include "share.h"

#include <cuda.h>

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
    uint64_t ticket = 0;   // where its ticket lies; 0: it was never exported
    bool imported = false; // from another process, which cannot take it back
};

unsigned handle_types_of(const Physical &physical);
void end_mapping(Physical &physical);
void collect_unheld(); // whose last descriptor was closed, here or in another process

} // namespace simcuda
