#pragma once

#include "gpu.h"

// The pattern at both ends of a block, in one context. On a GPU a kernel looks for the pattern and
// counts errors. A simulated driver has no kernels, but sees each use that is not ordered behind
// the one before, so there the next pattern is just written.
class Pattern {
public:
    Pattern(const Cuda &cuda, emm_context *context);
    ~Pattern();
    Pattern(const Pattern &) = delete;
    Pattern &operator=(const Pattern &) = delete;

    // One use of a block, in stream order: looks for the pattern of the use before, and leaves
    // another. `expected` is 0 for new memory.
    void replace(emm_deviceptr ptr, size_t size, unsigned expected, unsigned next,
                 CUstream stream) const;
    // Reads the pattern in stream order, waits, and throws unless the pattern is there.
    void read_back(emm_deviceptr ptr, size_t size, unsigned expected, CUstream stream) const;
    bool is_kernel() const { return kernel_; }
    unsigned errors() const; // found by kernels, after all work is done

private:
    const Cuda &cuda_;
    emm_context *const context_;
    CUfunction kernel_ = nullptr;
    decltype(&::cuLaunchKernel) launch_ = nullptr;
    emm_deviceptr errors_ = 0;
};
