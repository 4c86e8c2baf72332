// The pattern at both ends of a block: written and read by sets and copies of the driver. `Cuda` is
// a table of the driver's entries.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cuda.h>
#include <stdexcept>
#include <string>
#include <vector>

inline void check(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        throw std::runtime_error(std::string(what) + ": CUDA error " + std::to_string(result));
    }
}

// The places of the pattern: `words` of it at the head, and as many at the tail, which is 0 for a
// small block.
struct Ends {
    static constexpr size_t edge = 4096;

    Ends(CUdeviceptr ptr, size_t size)
        : head(ptr), tail(size >= 2 * edge ? ptr + size / 4 * 4 - edge : 0),
          words(unsigned(std::min(size, edge) / 4)) {}

    CUdeviceptr head, tail;
    unsigned words;
};

// In stream order.
template <class Cuda>
void write_ends(const Cuda &cuda, const Ends &ends, unsigned pattern, CUstream stream) {
    check(cuda.cuMemsetD32Async(ends.head, pattern, ends.words, stream), "cuMemsetD32Async");
    if (ends.tail) {
        check(cuda.cuMemsetD32Async(ends.tail, pattern, ends.words, stream), "cuMemsetD32Async");
    }
}

// In stream order: waits, and throws unless the pattern is there.
template <class Cuda>
void expect_ends(const Cuda &cuda, const Ends &ends, unsigned expected, CUstream stream) {
    std::vector<unsigned> found(ends.tail ? 2 * ends.words : ends.words);
    check(cuda.cuMemcpyDtoHAsync(found.data(), ends.head, ends.words * 4, stream),
          "cuMemcpyDtoHAsync");
    if (ends.tail) {
        check(cuda.cuMemcpyDtoHAsync(found.data() + ends.words, ends.tail, ends.words * 4, stream),
              "cuMemcpyDtoHAsync");
    }
    check(cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
    for (const unsigned word : found) {
        if (word != expected) {
            char text[160];
            std::snprintf(text, sizeof text, "0x%llx: expected the pattern 0x%x, found 0x%x",
                          ends.head, expected, word);
            throw std::runtime_error(text);
        }
    }
}
