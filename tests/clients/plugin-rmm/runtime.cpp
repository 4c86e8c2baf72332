// The part of the CUDA runtime that RMM uses, over the driver API.
//
// NVIDIA's runtime asks the driver for private tables, which the simulated driver does not have. So
// a librmm that is built for tests takes this library in its place. As in that runtime, calls go to
// the current context; a thread without a context gets the primary context of its device.
#include <cuda.h>
#include <cuda_runtime_api.h>

namespace {

thread_local int chosen_device = 0;

cudaError_t translated(CUresult result) {
    return result == CUDA_ERROR_NOT_READY       ? cudaErrorNotReady
           : result == CUDA_ERROR_OUT_OF_MEMORY ? cudaErrorMemoryAllocation
                                                // Others have the numbers of the driver.
                                                : static_cast<cudaError_t>(result);
}

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t done(CUresult result) {
    const cudaError_t error = translated(result);
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

CUresult make_ready() {
    CUcontext context = nullptr;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) {
        result = cuCtxGetCurrent(&context);
    }
    if (result == CUDA_SUCCESS && !context) {
        result = cuDevicePrimaryCtxRetain(&context, chosen_device);
        if (result == CUDA_SUCCESS) {
            result = cuCtxSetCurrent(context);
        }
    }
    return result;
}

template <class Function, class... Arguments>
cudaError_t ready_call(Function function, Arguments... arguments) {
    const CUresult result = make_ready();
    return done(result == CUDA_SUCCESS ? function(arguments...) : result);
}

CUdeviceptr address_of(const void *ptr) {
    return reinterpret_cast<CUdeviceptr>(ptr);
}

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

cudaError_t cudaGetDeviceCount(int *count) {
    const CUresult result = cuInit(0);
    return done(result == CUDA_SUCCESS ? cuDeviceGetCount(count) : result);
}
cudaError_t cudaGetDevice(int *device) {
    CUdevice current = 0;
    *device = cuCtxGetDevice(&current) == CUDA_SUCCESS ? current : chosen_device;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    CUcontext context = nullptr;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) {
        result = cuDevicePrimaryCtxRetain(&context, device);
    }
    if (result == CUDA_SUCCESS) {
        chosen_device = device;
        result = cuCtxSetCurrent(context);
    }
    return done(result);
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    const CUresult result = cuInit(0);
    return done(
        result == CUDA_SUCCESS
            ? cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device)
            : result);
}
cudaError_t cudaDeviceSynchronize() {
    return ready_call([] { return cuCtxSynchronize(); });
}
cudaError_t cudaDriverGetVersion(int *version) {
    return done(cuDriverGetVersion(version));
}
cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
const char *cudaGetErrorName(cudaError_t error) {
    const char *name = nullptr;
    return cuGetErrorName(static_cast<CUresult>(error), &name) == CUDA_SUCCESS ? name : "an error";
}
const char *cudaGetErrorString(cudaError_t error) {
    const char *text = nullptr;
    return cuGetErrorString(static_cast<CUresult>(error), &text) == CUDA_SUCCESS ? text
                                                                                 : "an error";
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *found) {
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult result = cuGetProcAddress(name, function, int(version), flags, &status);
    *found = static_cast<cudaDriverEntryPointQueryResult>(status);
    return done(result);
}

// --- streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return ready_call(&cuStreamCreate, stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return ready_call([=] { return cuStreamDestroy(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return ready_call([=] { return cuStreamSynchronize(stream); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    return ready_call([=] { return cuStreamWaitEvent(stream, event, flags); });
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
    return ready_call([=] { return cuStreamGetId(stream, id); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    return ready_call(&cuEventCreate, event, flags);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return ready_call([=] { return cuEventRecord(event, stream); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return ready_call([=] { return cuEventSynchronize(event); });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return ready_call([=] { return cuEventDestroy(event); });
}

// --- memory

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    return ready_call([=] { return cuMemGetInfo(free, total); });
}
cudaError_t cudaMalloc(void **ptr, size_t size) {
    return ready_call([=] { return cuMemAlloc(reinterpret_cast<CUdeviceptr *>(ptr), size); });
}
cudaError_t cudaFree(void *ptr) {
    return ready_call([=] { return ptr ? cuMemFree(address_of(ptr)) : CUDA_SUCCESS; });
}
cudaError_t cudaMallocManaged(void **ptr, size_t size, unsigned flags) {
    return ready_call(
        [=] { return cuMemAllocManaged(reinterpret_cast<CUdeviceptr *>(ptr), size, flags); });
}
cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned flags) {
    return ready_call([=] { return cuMemHostAlloc(ptr, size, flags); });
}
cudaError_t cudaFreeHost(void *ptr) {
    return ready_call([=] { return cuMemFreeHost(ptr); });
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
    return ready_call(
        [=] { return cuMemcpyAsync(address_of(to), address_of(from), size, stream); });
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *properties) {
    return ready_call([=] {
        const CUmemPoolProps made = driver_properties(*properties);
        return cuMemPoolCreate(pool, &made);
    });
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    return ready_call([=] { return cuMemPoolDestroy(pool); });
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
    return ready_call([=] { return cuMemFreeAsync(address_of(ptr), stream); });
}

cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t *pool, cudaMemLocation *location,
                                     cudaMemAllocationType) {
    return ready_call([=] { return cuDeviceGetDefaultMemPool(pool, location->id); });
}

// --- not simulated

cudaError_t cudaMemAdvise(const void *, size_t, cudaMemoryAdvise, cudaMemLocation) {
    return cudaErrorNotSupported;
}
cudaError_t cudaMemPrefetchAsync(const void *, size_t, cudaMemLocation, unsigned, cudaStream_t) {
    return cudaErrorNotSupported;
}

} // extern "C"
