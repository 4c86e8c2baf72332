// Finds the driver in one of the ways of programs.
#pragma once

#include <cuda.h>
#include <string>
#include <type_traits>

// The entries that the cases call. Each is asked for by the CUDA version 12.0.
#define DRIVER_ENTRIES(X)                                                                          \
    X(cuGetProcAddress)                                                                            \
    X(cuInit)                                                                                      \
    X(cuDriverGetVersion)                                                                          \
    X(cuGetErrorName)                                                                              \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceTotalMem)                                                                            \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceCanAccessPeer)                                                                       \
    X(cuDeviceGetDefaultMemPool)                                                                   \
    X(cuDeviceGetMemPool)                                                                          \
    X(cuDeviceSetMemPool)                                                                          \
    X(cuDeviceGetGraphMemAttribute)                                                                \
    X(cuDeviceSetGraphMemAttribute)                                                                \
    X(cuDeviceGraphMemTrim)                                                                        \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuDevicePrimaryCtxReset)                                                                     \
    X(cuDevicePrimaryCtxGetState)                                                                  \
    X(cuCtxDestroy)                                                                                \
    X(cuCtxPushCurrent)                                                                            \
    X(cuCtxPopCurrent)                                                                             \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxSynchronize)                                                                            \
    X(cuCtxEnablePeerAccess)                                                                       \
    X(cuCtxDisablePeerAccess)                                                                      \
    X(cuMemGetInfo)                                                                                \
    X(cuMemAlloc)                                                                                  \
    X(cuMemAllocPitch)                                                                             \
    X(cuMemAllocManaged)                                                                           \
    X(cuMemFree)                                                                                   \
    X(cuMemGetAddressRange)                                                                        \
    X(cuMemAllocHost)                                                                              \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemHostGetDevicePointer)                                                                   \
    X(cuMemHostGetFlags)                                                                           \
    X(cuMemHostRegister)                                                                           \
    X(cuMemHostUnregister)                                                                         \
    X(cuPointerGetAttribute)                                                                       \
    X(cuPointerGetAttributes)                                                                      \
    X(cuPointerSetAttribute)                                                                       \
    X(cuMemGetHandleForAddressRange)                                                               \
    X(cuMemRetainAllocationHandle)                                                                 \
    X(cuMemAllocAsync)                                                                             \
    X(cuMemAllocFromPoolAsync)                                                                     \
    X(cuMemFreeAsync)                                                                              \
    X(cuMemPoolCreate)                                                                             \
    X(cuMemPoolDestroy)                                                                            \
    X(cuMemPoolGetAttribute)                                                                       \
    X(cuMemPoolSetAttribute)                                                                       \
    X(cuMemPoolSetAccess)                                                                          \
    X(cuMemPoolGetAccess)                                                                          \
    X(cuMemPoolExportPointer)                                                                      \
    X(cuMemPoolExportToShareableHandle)                                                            \
    X(cuMemPoolTrimTo)                                                                             \
    X(cuMemAddressReserve)                                                                         \
    X(cuMemAddressFree)                                                                            \
    X(cuMemCreate)                                                                                 \
    X(cuMemRelease)                                                                                \
    X(cuMemMap)                                                                                    \
    X(cuMemUnmap)                                                                                  \
    X(cuMemSetAccess)                                                                              \
    X(cuMemGetAccess)                                                                              \
    X(cuMemExportToShareableHandle)                                                                \
    X(cuMemImportFromShareableHandle)                                                              \
    X(cuMemGetAllocationPropertiesFromHandle)                                                      \
    X(cuArrayCreate)                                                                               \
    X(cuArray3DCreate)                                                                             \
    X(cuArrayGetDescriptor)                                                                        \
    X(cuArrayDestroy)                                                                              \
    X(cuMipmappedArrayCreate)                                                                      \
    X(cuMipmappedArrayDestroy)                                                                     \
    X(cuGraphAddMemAllocNode)                                                                      \
    X(cuGraphAddMemFreeNode)                                                                       \
    X(cuIpcGetMemHandle)                                                                           \
    X(cuIpcOpenMemHandle)                                                                          \
    X(cuIpcCloseMemHandle)                                                                         \
    X(cuMemcpyDtoH)                                                                                \
    X(cuMemcpyDtoHAsync)                                                                           \
    X(cuMemcpyDtoDAsync)                                                                           \
    X(cuMemcpyPeerAsync)                                                                           \
    X(cuMemsetD8Async)                                                                             \
    X(cuMemsetD32Async)                                                                            \
    X(cuLaunchHostFunc)                                                                            \
    X(cuStreamCreate)                                                                              \
    X(cuStreamCreateWithPriority)                                                                  \
    X(cuStreamDestroy)                                                                             \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamWaitEvent)                                                                           \
    X(cuStreamGetFlags)                                                                            \
    X(cuStreamGetId)                                                                               \
    X(cuStreamBeginCapture)                                                                        \
    X(cuStreamEndCapture)                                                                          \
    X(cuStreamIsCapturing)                                                                         \
    X(cuThreadExchangeStreamCaptureMode)                                                           \
    X(cuEventCreate)                                                                               \
    X(cuEventRecord)                                                                               \
    X(cuEventDestroy)                                                                              \
    X(cuGraphCreate)                                                                               \
    X(cuGraphClone)                                                                                \
    X(cuGraphDestroy)                                                                              \
    X(cuGraphGetNodes)                                                                             \
    X(cuGraphInstantiateWithFlags)                                                                 \
    X(cuGraphExecUpdate)                                                                           \
    X(cuGraphLaunch)                                                                               \
    X(cuGraphExecDestroy)

// Entries whose C signature depends on the header: by symbol, name, CUDA version and signature.
#define DRIVER_VERSIONS(X)                                                                         \
    X(cuCtxCreate_v2, "cuCtxCreate", 3020, CUresult(CUcontext *, unsigned, CUdevice))              \
    X(cuCtxAttach, "cuCtxAttach", 2000, CUresult(CUcontext *, unsigned))                           \
    X(cuCtxDetach, "cuCtxDetach", 2000, CUresult(CUcontext))                                       \
    X(cuMemSetMemPool, "cuMemSetMemPool", 13000,                                                   \
      CUresult(CUmemLocation *, CUmemAllocationType, CUmemoryPool))                                \
    X(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030,                           \
      CUresult(CUstream, CUgraph, const CUgraphNode *, const void *, size_t, CUstreamCaptureMode))

struct Driver {
#define MEMBER(name) decltype(&::name) name = nullptr;
#define VERSION(symbol, name, version, ...) std::add_pointer_t<__VA_ARGS__> symbol = nullptr;
    DRIVER_ENTRIES(MEMBER)
    DRIVER_VERSIONS(VERSION)
#undef MEMBER
#undef VERSION
};

extern Driver cu;

// Another entry of the driver, or NULL.
template <class Function> Function *entry_of(const char *name, int version = 12000) {
    void *entry = nullptr;
    CUdriverProcAddressQueryResult found;
    const CUresult result = cu.cuGetProcAddress(name, &entry, version, 0, &found);
    return result == CUDA_SUCCESS ? reinterpret_cast<Function *>(entry) : nullptr;
}

// How: `linked`, `dlsym` (libcuda.so.1), `dlsym-so` (libcuda.so), `deepbind`, `proc` and
// `proc-per-thread` (cuGetProcAddress of libcuda.so), or `path=/absolute/libcuda.so.1`. Empty, or
// why there is no driver.
std::string find_driver(const std::string &how);
