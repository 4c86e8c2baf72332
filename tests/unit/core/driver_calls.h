// The driver calls that these tests make themselves, on whatever driver emm uses.
#pragma once

#include "catch.h"

#include <emm/emm.h>

#include <cuda.h>

template <class Function> Function driver_entry(const char *name, int version = 12000) {
    const auto entry = reinterpret_cast<Function>(emm_driver_entry(name, version));
    INFO(name);
    REQUIRE(entry);
    return entry;
}

#define CU(name) driver_entry<decltype(&::name)>(#name)

// How often a driver function was called; NULL on a real driver, after a line that says so.
using CallCount = uint64_t (*)(const char *name);
inline CallCount simulated_call_count() {
    const auto count = reinterpret_cast<CallCount>(emm_driver_entry("simcuda_call_count", 12000));
    if (!count) {
        WARN("skipped: the driver is not simulated");
    }
    return count;
}

inline CUcontext new_context(int device = 0) {
    using Create = CUresult (*)(CUcontext *, unsigned, CUdevice);
    CUcontext made = nullptr;
    REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
    REQUIRE(driver_entry<Create>("cuCtxCreate", 3020)(&made, 0, device) == CUDA_SUCCESS);
    return made;
}
