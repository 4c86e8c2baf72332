// The part of the CUDA runtime that RMM uses, over the driver API: a librmm that is built for tests
// takes this library in the place of NVIDIA's.
#include "../driver_runtime.h"

namespace {

CUmemPoolProps driver_properties(const cudaMemPoolProps &given) {
    CUmemPoolProps made = {};
    made.allocType = static_cast<CUmemAllocationType>(given.allocType);
    made.handleTypes = static_cast<CUmemAllocationHandleType>(given.handleTypes);
    made.location.type = static_cast<CUmemLocationType>(given.location.type);
    made.location.id = given.location.id;
    made.maxSize = given.maxSize;
    return made;
}

} // namespace

extern "C" {

const char *cudaGetErrorName(cudaError_t error) {
    const char *name = nullptr;
    return cuGetErrorName(static_cast<CUresult>(error), &name) == CUDA_SUCCESS ? name : "an error";
}
const char *cudaGetErrorString(cudaError_t error) {
    const char *text = nullptr;
    return cuGetErrorString(static_cast<CUresult>(error), &text) == CUDA_SUCCESS ? text
                                                                                 : "an error";
}

// --- streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return READY_CALL(cuStreamCreate(stream, flags));
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
    return READY_CALL(cuStreamGetId(stream, id));
}

// --- memory

cudaError_t cudaMallocManaged(void **ptr, size_t size, unsigned flags) {
    return READY_CALL(cuMemAllocManaged(reinterpret_cast<CUdeviceptr *>(ptr), size, flags));
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *properties) {
    return ready_call([=] {
        const CUmemPoolProps made = driver_properties(*properties);
        return cuMemPoolCreate(pool, &made);
    });
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    return READY_CALL(cuMemPoolDestroy(pool));
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value) {
    return ready_call([=] {
        return cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
    });
}
cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t pool,
                                    cudaStream_t stream) {
    return ready_call([=] {
        return cuMemAllocFromPoolAsync(reinterpret_cast<CUdeviceptr *>(ptr), size, pool, stream);
    });
}
cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream) {
    return READY_CALL(cuMemFreeAsync(address_of(ptr), stream));
}

cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t *pool, cudaMemLocation *location,
                                     cudaMemAllocationType) {
    return READY_CALL(cuDeviceGetDefaultMemPool(pool, location->id));
}

// --- not simulated

cudaError_t cudaMemAdvise(const void *, size_t, cudaMemoryAdvise, cudaMemLocation) {
    return cudaErrorNotSupported;
}
cudaError_t cudaMemPrefetchAsync(const void *, size_t, cudaMemLocation, unsigned, cudaStream_t) {
    return cudaErrorNotSupported;
}

} // extern "C"
