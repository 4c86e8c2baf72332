#pragma once

#include <cuda.h>
#include <map>
#include <set>
#include <utility>

namespace simcuda {

struct Physical;

// Memory of several devices behind one handle. Programs bind memory to it; it cannot be mapped
// here.
struct Multicast {
    size_t size = 0;
    unsigned devices_wanted = 0;
    std::set<CUdevice> devices;
    std::map<std::pair<CUdevice, size_t>, Physical *> bound; // by device and offset
};

// Releases a handle. False: the handle is not of a multicast object.
bool release_multicast(CUmemGenericAllocationHandle handle);

} // namespace simcuda
