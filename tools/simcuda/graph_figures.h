#pragma once

#include <cstdint>
#include <cuda.h>
#include <map>

namespace simcuda {

struct Device;
struct Region;

// How much memory of a device its graphs use, as driver 580 tells: a launch counts it, and only a
// trim takes from it what no launch has left to the program. All that is counted is reserved.
struct GraphFigures {
    struct Part {
        CUdeviceptr start;
        uint64_t size;
    };
    std::map<uint64_t, Part> used; // by the region's id
    uint64_t used_high = 0, reserved_high = 0;

    void launched(const Region &region);
    uint64_t bytes() const;
};

} // namespace simcuda
