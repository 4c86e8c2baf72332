#pragma once

#include "gpu.h"

#include <vector>

// Device memory with a pattern of its own at both ends.
struct Block {
    size_t gpu = 0; // which context
    emm_deviceptr ptr = 0;
    size_t size = 0;
    unsigned pattern = 0;

    // Writes the pattern in stream order.
    void fill(const Cuda &cuda, CUstream stream) const;
    // Reads it back in stream order, waits, and throws if it is not there.
    void verify(const Cuda &cuda, CUstream stream) const;

private:
    static constexpr size_t edge = 4096; // a large block's middle would cost time and show no more
    size_t head() const { return size < edge ? size : edge; }
};
