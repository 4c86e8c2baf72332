#pragma once

#include <cstdint>
#include <cuda.h>

namespace simcuda {

struct Context;

// A CUDA array, with or without mipmaps: memory of the device without an address. Nothing here
// copies to it or from it.
struct Array {
    Context *context = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    uint64_t offset = 0, size = 0; // in the device's store
};

// With their context.
void end_arrays(Context &context);

} // namespace simcuda
