// PyTorch's pair of functions over NCCL's memory, with one mapping for each allocation. NCCL unmaps
// without looking at streams, so the free waits for its own stream.
#include <cuda_runtime_api.h>
#include <sys/types.h>

// nccl.h comes with NCCL's wheel, not with the toolkit; 0 is ncclSuccess.
extern "C" int ncclMemAlloc(void **ptr, size_t size);
extern "C" int ncclMemFree(void *ptr);

extern "C" {

void *my_malloc(ssize_t size, int, cudaStream_t) {
    void *ptr = nullptr;
    return ncclMemAlloc(&ptr, size) == 0 ? ptr : nullptr;
}

void my_free(void *ptr, ssize_t, int, cudaStream_t stream) {
    cudaStreamSynchronize(stream);
    ncclMemFree(ptr);
}
}
