// The part of the CUDA runtime that RMM and PyTorch both use, over the driver API.
//
// NVIDIA's runtime asks the driver for private tables, which the simulated driver does not have.
// Calls go to the current context, as in that runtime.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t translated(CUresult result) {
    return result == CUDA_ERROR_NOT_READY ? cudaErrorNotReady
           : result == CUDA_ERROR_OUT_OF_MEMORY
               ? cudaErrorMemoryAllocation
               : static_cast<cudaError_t>(result); // others have equal numbers
}

cudaError_t done(CUresult result) {
    const cudaError_t error = translated(result);
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

CUresult use_device(int device) {
    CUcontext context = nullptr;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) {
        result = cuDevicePrimaryCtxRetain(&context, device);
    }
    if (result == CUDA_SUCCESS) {
        current_device = device;
        result = cuCtxSetCurrent(context);
    }
    return result;
}

// A thread without a context gets the primary context of its device.
CUresult make_ready() {
    CUcontext context = nullptr;
    return cuCtxGetCurrent(&context) == CUDA_SUCCESS && context ? CUDA_SUCCESS
                                                                : use_device(current_device);
}

template <class Call> cudaError_t ready_call(Call call) {
    const CUresult result = make_ready();
    return done(result == CUDA_SUCCESS ? call() : result);
}

CUdeviceptr address_of(const void *ptr) {
    return reinterpret_cast<CUdeviceptr>(ptr);
}

} // namespace

#define READY_CALL(call) ready_call([&] { return call; })

extern "C" {

cudaError_t cudaGetDeviceCount(int *count) {
    const CUresult result = cuInit(0);
    return done(result == CUDA_SUCCESS ? cuDeviceGetCount(count) : result);
}
cudaError_t cudaGetDevice(int *device) {
    CUdevice current = 0;
    *device = cuCtxGetDevice(&current) == CUDA_SUCCESS ? current : current_device;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    return done(use_device(device));
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    const CUresult result = cuInit(0);
    return done(
        result == CUDA_SUCCESS
            ? cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device)
            : result);
}
cudaError_t cudaDeviceSynchronize() {
    return READY_CALL(cuCtxSynchronize());
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
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *found) {
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult result = cuGetProcAddress(name, function, int(version), flags, &status);
    if (found) {
        *found = static_cast<cudaDriverEntryPointQueryResult>(status);
    }
    return done(result);
}

// --- streams and events

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return READY_CALL(cuStreamDestroy(stream));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return READY_CALL(cuStreamSynchronize(stream));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    return READY_CALL(cuStreamWaitEvent(stream, event, flags));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    return READY_CALL(cuEventCreate(event, flags & ~unsigned(CU_EVENT_INTERPROCESS)));
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return READY_CALL(cuEventRecord(event, stream));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return READY_CALL(cuEventSynchronize(event));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return READY_CALL(cuEventDestroy(event));
}

// --- memory

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    return READY_CALL(cuMemGetInfo(free, total));
}
cudaError_t cudaMalloc(void **ptr, size_t size) {
    return READY_CALL(cuMemAlloc(reinterpret_cast<CUdeviceptr *>(ptr), size));
}
cudaError_t cudaFree(void *ptr) {
    return READY_CALL(ptr ? cuMemFree(address_of(ptr)) : CUDA_SUCCESS);
}
cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned flags) {
    return READY_CALL(cuMemHostAlloc(ptr, size, flags));
}
cudaError_t cudaFreeHost(void *ptr) {
    return READY_CALL(cuMemFreeHost(ptr));
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
    return READY_CALL(cuMemcpyAsync(address_of(to), address_of(from), size, stream));
}

} // extern "C"
