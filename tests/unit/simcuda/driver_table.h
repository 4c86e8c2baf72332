// A CUDA driver to test: the simulated one, or what EMM_TEST_DRIVER names ("real" or a path).
#pragma once

#include "simcuda.h"

#include <cuda.h>
#include <string>

// Entries with their signatures of CUDA 12.0, which later headers keep. They are written as in C:
// cu().cuMemAlloc(...).
#define TESTED_ENTRIES(entry)                                                                                                     \
    entry(cuInit) entry(cuDriverGetVersion) entry(cuGetErrorName) entry(cuGetErrorString) entry(                                  \
        cuDeviceGet) entry(cuDeviceGetCount) entry(cuDeviceGetName) entry(cuDeviceGetUuid) entry(cuDeviceGetAttribute)            \
        entry(cuDeviceTotalMem) entry(cuDeviceGetPCIBusId) entry(cuDeviceGetByPCIBusId) entry(                                    \
            cuDevicePrimaryCtxRetain) entry(cuDevicePrimaryCtxRelease) entry(cuDevicePrimaryCtxReset)                             \
            entry(cuDevicePrimaryCtxGetState) entry(cuCtxDestroy) entry(cuCtxPushCurrent) entry(                                  \
                cuCtxPopCurrent) entry(cuCtxSetCurrent) entry(cuCtxGetCurrent) entry(cuCtxGetDevice)                              \
                entry(cuCtxGetId) entry(cuCtxSynchronize) entry(cuMemGetInfo) entry(cuMemAlloc) entry(                            \
                    cuMemFree) entry(cuMemGetAddressRange) entry(cuMemHostAlloc) entry(cuMemFreeHost)                             \
                    entry(cuMemHostGetDevicePointer) entry(cuMemHostRegister) entry(cuMemHostUnregister) entry(                   \
                        cuMemAllocManaged) entry(cuPointerGetAttribute) entry(cuPointerGetAttributes)                             \
                        entry(cuMemAddressReserve) entry(cuMemAddressFree) entry(cuMemCreate) entry(                              \
                            cuMemRelease) entry(cuMemMap) entry(cuMemUnmap) entry(cuMemSetAccess) entry(cuMemGetAccess)           \
                            entry(cuMemGetAllocationGranularity) entry(cuMemRetainAllocationHandle) entry(                        \
                                cuMemExportToShareableHandle) entry(cuMemImportFromShareableHandle)                               \
                                entry(cuMemAllocAsync) entry(cuMemAllocFromPoolAsync) entry(                                      \
                                    cuMemFreeAsync) entry(cuMemPoolCreate) entry(cuMemPoolDestroy)                                \
                                    entry(cuMemPoolSetAttribute) entry(cuMemPoolGetAttribute) entry(                              \
                                        cuMemPoolTrimTo) entry(cuDeviceGetDefaultMemPool) entry(cuIpcGetMemHandle)                \
                                        entry(cuIpcOpenMemHandle) entry(cuIpcCloseMemHandle) entry(                               \
                                            cuMemPoolExportToShareableHandle) entry(cuMemPoolImportFromShareableHandle)           \
                                            entry(cuMemPoolExportPointer) entry(cuMemPoolImportPointer) entry(                    \
                                                cuMemcpy) entry(cuMemcpyHtoD) entry(cuMemcpyDtoH)                                 \
                                                entry(cuMemcpyHtoDAsync) entry(cuMemcpyDtoHAsync) entry(                          \
                                                    cuMemcpyDtoDAsync) entry(cuMemsetD8) entry(cuMemsetD32)                       \
                                                    entry(cuMemsetD8Async) entry(cuMemsetD32Async) entry(                         \
                                                        cuStreamCreate) entry(cuStreamDestroy)                                    \
                                                        entry(cuStreamGetId) entry(cuStreamGetFlags) entry(                       \
                                                            cuStreamQuery) entry(cuStreamSynchronize)                             \
                                                            entry(cuStreamWaitEvent) entry(                                       \
                                                                cuLaunchHostFunc) entry(cuStreamBeginCapture)                     \
                                                                entry(cuStreamEndCapture) entry(                                  \
                                                                    cuStreamIsCapturing) entry(cuThreadExchangeStreamCaptureMode) \
                                                                    entry(cuEventCreate) entry(                                   \
                                                                        cuEventRecord) entry(cuEventQuery)                        \
                                                                        entry(cuEventSynchronize) entry(                          \
                                                                            cuEventDestroy) entry(cuGraphDestroy)                 \
                                                                            entry(cuGraphGetNodes) entry(                         \
                                                                                cuGraphInstantiateWithFlags)                      \
                                                                                entry(cuGraphLaunch) entry(                       \
                                                                                    cuGraphExecDestroy)                           \
                                                                                    entry(                                        \
                                                                                        cuUserObjectCreate)                       \
                                                                                        entry(                                    \
                                                                                            cuUserObjectRelease)                  \
                                                                                            entry(                                \
                                                                                                cuGraphRetainUserObject)

struct CudaDriver {
#define TESTED_MEMBER(name) decltype(&::name) name = nullptr;
    TESTED_ENTRIES(TESTED_MEMBER)
#undef TESTED_MEMBER
    // Those whose signature depends on the header, or which it may lack.
    CUresult (*create_context)(CUcontext *, unsigned, CUdevice) = nullptr;
    CUresult (*record_context)(CUcontext, CUevent) = nullptr;
    CUresult (*get_proc_address)(const char *, void **, int, cuuint64_t, int *) = nullptr;

    // The simulator's own entries, NULL on another driver.
    decltype(&simcuda_get_counters) get_counters = nullptr;
    decltype(&simcuda_call_count) call_count = nullptr;
    decltype(&simcuda_last_race) last_race = nullptr;
    decltype(&simcuda_configure) configure = nullptr;
    decltype(&simcuda_fail) fail = nullptr;
    decltype(&simcuda_launch) launch = nullptr;
    decltype(&simcuda_reset_peaks) reset_peaks = nullptr;

    bool simulated() const {
        return get_counters != nullptr;
    }
};

// The driver, opened on the first call and not yet initialised.
const CudaDriver &cu();
