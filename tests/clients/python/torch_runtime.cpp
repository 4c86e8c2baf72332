// The part of the CUDA runtime that PyTorch uses beside kernels, over the driver API.
//
// This library is preloaded before NVIDIA's runtime, and torch_test.py compiles it. Calls that this
// library lacks stay with NVIDIA's runtime and fail there: kernels do not run.
#include "../driver_runtime.h"

#include <cstring>

extern "C" {

// --- devices

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
    std::memset(properties, 0, sizeof *properties);
    cuInit(0);
    cuDeviceGetName(properties->name, sizeof properties->name, device);
    properties->multiProcessorCount = 1;
    properties->warpSize = 32;
    properties->major = 9;
    return done(cuDeviceTotalMem(&properties->totalGlobalMem, device));
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return READY_CALL(cuCtxGetStreamPriorityRange(least, greatest));
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    return done(cuDeviceCanAccessPeer(can, device, peer));
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    CUcontext context = nullptr;
    cuDevicePrimaryCtxRetain(&context, peer);
    return READY_CALL(cuCtxEnablePeerAccess(context, flags));
}
cudaError_t cudaPeekAtLastError() {
    return last_error;
}

// --- streams and events

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    return READY_CALL(cuStreamCreateWithPriority(stream, flags, priority));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return READY_CALL(cuStreamQuery(stream));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    return READY_CALL(
        cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus *>(status)));
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *count) {
    cuuint64_t found = 0;
    const cudaError_t error = READY_CALL(cuStreamGetCaptureInfo(
        stream, reinterpret_cast<CUstreamCaptureStatus *>(status), &found, graph, nodes,
        reinterpret_cast<const CUgraphEdgeData **>(edges), count));
    if (id) {
        *id = found;
    }
    return error;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    return READY_CALL(cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    return READY_CALL(cuStreamEndCapture(stream, graph));
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    return READY_CALL(
        cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode *>(mode)));
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    return READY_CALL(cuEventRecordWithFlags(event, stream, flags));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return READY_CALL(cuEventQuery(event));
}

// --- memory

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind) {
    return READY_CALL(cuMemcpy(address_of(to), address_of(from), size));
}
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t size, cudaStream_t stream) {
    CUcontext to_context = nullptr, from_context = nullptr;
    cuDevicePrimaryCtxRetain(&to_context, to_device);
    cuDevicePrimaryCtxRetain(&from_context, from_device);
    return READY_CALL(cuMemcpyPeerAsync(address_of(to), to_context, address_of(from), from_context,
                                        size, stream));
}
cudaError_t cudaMemset(void *ptr, int value, size_t size) {
    return READY_CALL(cuMemsetD8(address_of(ptr), static_cast<unsigned char>(value), size));
}
cudaError_t cudaMemsetAsync(void *ptr, int value, size_t size, cudaStream_t stream) {
    return READY_CALL(
        cuMemsetD8Async(address_of(ptr), static_cast<unsigned char>(value), size, stream));
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *ptr) {
    std::memset(attributes, 0, sizeof *attributes);
    unsigned type = 0;
    make_ready();
    if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address_of(ptr)) !=
        CUDA_SUCCESS) {
        return cudaSuccess; // the driver does not know this memory
    }
    attributes->type = type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->devicePointer = attributes->hostPointer = const_cast<void *>(ptr);
    return done(cuPointerGetAttribute(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      address_of(ptr)));
}

// --- other processes

// The simulated driver shares no events between processes: the sender waits, and the receiver gets
// an event that was never recorded.
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
    std::memset(handle, 0, sizeof *handle);
    return READY_CALL(cuEventSynchronize(event));
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t) {
    return READY_CALL(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
}

// --- graphs

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    return READY_CALL(cuGraphGetNodes(graph, nodes, count));
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long) {
    return READY_CALL(cuGraphInstantiateWithFlags(exec, graph, 0));
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    return READY_CALL(cuGraphLaunch(exec, stream));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return READY_CALL(cuGraphDestroy(graph));
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return READY_CALL(cuGraphExecDestroy(exec));
}

// --- kernels: they do nothing, so a test uses copies where it needs results

cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t) {
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t) {
    return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *, const void *, void **) {
    return cudaSuccess;
}

} // extern "C"
