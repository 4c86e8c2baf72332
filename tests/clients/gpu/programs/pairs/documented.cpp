// PyTorch's pair of functions over cudaMalloc, as in the documentation of CUDAPluggableAllocator,
// but without its prints.
#include <cuda_runtime_api.h>
#include <sys/types.h>

extern "C" {

void *my_malloc(ssize_t size, int, cudaStream_t) {
    void *ptr = nullptr;
    cudaMalloc(&ptr, size);
    return ptr;
}

void my_free(void *ptr, ssize_t, int, cudaStream_t) {
    cudaFree(ptr);
}
}
