#include "block.h"

void Block::fill(const Cuda &cuda, CUstream stream) const {
    check(cuda.cuMemsetD32Async(ptr, pattern, head() / 4, stream), "cuMemsetD32Async");
    if (size > edge) {
        check(cuda.cuMemsetD32Async(ptr + size - head(), pattern, head() / 4, stream),
              "cuMemsetD32Async");
    }
}

void Block::verify(const Cuda &cuda, CUstream stream) const {
    std::vector<unsigned> words(head() / 2);
    const size_t half = words.size() / 2;
    check(cuda.cuMemcpyDtoHAsync(words.data(), ptr, half * 4, stream), "cuMemcpyDtoHAsync");
    check(cuda.cuMemcpyDtoHAsync(words.data() + half, ptr + size - head(), half * 4, stream),
          "cuMemcpyDtoHAsync");
    check(cuda.cuStreamSynchronize(stream), "cuStreamSynchronize");
    for (const unsigned word : words) {
        if (word != pattern) {
            char text[160];
            snprintf(text, sizeof text,
                     "0x%llx, %zu bytes, context %zu: expected the pattern 0x%x, found 0x%x", ptr,
                     size, gpu, pattern, word);
            throw std::runtime_error(text);
        }
    }
}
