#pragma once

#include "gpu.h"

// One use of a block, in stream order: looks for the pattern that the use before has left, and
// leaves another. On a GPU a kernel does both, and counts what it finds wrong; a simulated driver
// has no kernels, but sees each use that is not ordered after the one before, so there the pattern
// is just written.
class Turn {
public:
    Turn(const Cuda &cuda, emm_context *context);
    ~Turn();
    Turn(const Turn &) = delete;
    Turn &operator=(const Turn &) = delete;

    // `expected` is 0 for memory that is new.
    void take(emm_deviceptr ptr, size_t size, unsigned expected, unsigned next,
              CUstream stream) const;
    bool is_kernel() const { return kernel_; }
    unsigned errors() const; // after all work is done

private:
    const Cuda &cuda_;
    emm_context *const context_;
    CUfunction kernel_ = nullptr;
    decltype(&::cuLaunchKernel) launch_ = nullptr;
    emm_deviceptr errors_ = 0;
};
