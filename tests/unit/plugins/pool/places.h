// Common steps of the tests of pieces in several places.
#pragma once

#include "simulation.h"

namespace pool_test {

// Blocks of one page, of which every other one is freed on `stream` with work on it.
struct Comb {
    Comb(Simulation &sim, size_t teeth, CUstream stream) {
        std::vector<CUdeviceptr> blocks;
        for (size_t i = 0; i < 2 * teeth; i++) {
            blocks.push_back(sim.alloc(2 * MiB, stream));
            sim.touch(blocks.back(), 2 * MiB, stream);
        }
        for (size_t i = 0; i < 2 * teeth; i++) {
            (i % 2 ? kept : freed).push_back(blocks[i]);
        }
        for (const CUdeviceptr ptr : freed) {
            sim.free(ptr, stream);
        }
    }
    std::vector<CUdeviceptr> kept, freed;
};

template <class Function> Function *entry(const char *name) {
    return reinterpret_cast<Function *>(host().driver(name, 12000));
}

// The physical memory behind an address; 0: none.
inline CUmemGenericAllocationHandle piece_at(CUdeviceptr ptr) {
    CUmemGenericAllocationHandle piece = 0;
    const CUresult result = entry<decltype(::cuMemRetainAllocationHandle)>(
        "cuMemRetainAllocationHandle")(&piece, reinterpret_cast<void *>(ptr));
    if (result != CUDA_SUCCESS) {
        return 0;
    }
    entry<decltype(::cuMemRelease)>("cuMemRelease")(piece);
    return piece;
}

// The number of the block's pages that are also mapped at one of the addresses.
inline size_t pages_in_two_places(CUdeviceptr block, size_t size,
                                  const std::vector<CUdeviceptr> &ptrs) {
    size_t count = 0;
    for (const CUdeviceptr ptr : ptrs) {
        for (size_t at = 0; at < size && piece_at(ptr); at += 2 * MiB) {
            count += piece_at(block + at) == piece_at(ptr);
        }
    }
    return count;
}

constexpr size_t teeth = 16, large = teeth * 2 * MiB, held = 2 * large;

} // namespace pool_test
