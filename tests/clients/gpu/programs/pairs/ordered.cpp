// PyTorch's pair of functions over cuMemAllocAsync, on the device's default pool.
#include <cuda.h>
#include <sys/types.h>

extern "C" {

void *my_malloc(ssize_t size, int, CUstream stream) {
    CUdeviceptr ptr = 0;
    if (cuMemAllocAsync(&ptr, size, stream) != CUDA_SUCCESS) {
        return nullptr;
    }
    return reinterpret_cast<void *>(ptr);
}

void my_free(void *ptr, ssize_t, int, CUstream stream) {
    cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(ptr), stream);
}
}
