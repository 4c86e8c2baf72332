// A CUDA driver to test: the simulated driver, or the one that EMM_TEST_DRIVER names ("real" or a
// path).
#pragma once

#include "simcuda.h"

#include <emm/cuda.h>
#include <string>

// They are called as in C: cu().cuMemAlloc(...).
struct CudaDriver : emm::cuda::Entries {
    explicit CudaDriver(emm::cuda::Find find) : Entries(find) {}
    using Entries::optional; // an entry of another version, or NULL

    EMM_CUDA_OPTIONAL(cuInit);
    EMM_CUDA_OPTIONAL(cuDriverGetVersion);
    EMM_CUDA_OPTIONAL(cuGetErrorName);
    EMM_CUDA_OPTIONAL(cuGetErrorString);
    EMM_CUDA_OPTIONAL(cuDeviceGet);
    EMM_CUDA_OPTIONAL(cuDeviceGetCount);
    EMM_CUDA_OPTIONAL(cuDeviceGetName);
    EMM_CUDA_OPTIONAL(cuDeviceGetUuid);
    EMM_CUDA_OPTIONAL(cuDeviceGetAttribute);
    EMM_CUDA_OPTIONAL(cuDeviceTotalMem);
    EMM_CUDA_OPTIONAL(cuDeviceGetPCIBusId);
    EMM_CUDA_OPTIONAL(cuDeviceGetByPCIBusId);
    EMM_CUDA_OPTIONAL(cuDevicePrimaryCtxRetain);
    EMM_CUDA_OPTIONAL(cuDevicePrimaryCtxRelease);
    EMM_CUDA_OPTIONAL(cuDevicePrimaryCtxReset);
    EMM_CUDA_OPTIONAL(cuDevicePrimaryCtxGetState);
    EMM_CUDA_OPTIONAL(cuCtxDestroy);
    EMM_CUDA_OPTIONAL(cuCtxPushCurrent);
    EMM_CUDA_OPTIONAL(cuCtxPopCurrent);
    EMM_CUDA_OPTIONAL(cuCtxSetCurrent);
    EMM_CUDA_OPTIONAL(cuCtxGetCurrent);
    EMM_CUDA_OPTIONAL(cuCtxGetDevice);
    EMM_CUDA_OPTIONAL(cuCtxGetId);
    EMM_CUDA_OPTIONAL(cuCtxSynchronize);
    EMM_CUDA_OPTIONAL(cuMemGetInfo);
    EMM_CUDA_OPTIONAL(cuMemAlloc);
    EMM_CUDA_OPTIONAL(cuMemAllocPitch);
    EMM_CUDA_OPTIONAL(cuMemFree);
    EMM_CUDA_OPTIONAL(cuMemGetAddressRange);
    EMM_CUDA_OPTIONAL(cuMemGetHandleForAddressRange);
    EMM_CUDA_OPTIONAL(cuMemAllocHost);
    EMM_CUDA_OPTIONAL(cuMemHostAlloc);
    EMM_CUDA_OPTIONAL(cuMemHostGetFlags);
    EMM_CUDA_OPTIONAL(cuMemFreeHost);
    EMM_CUDA_OPTIONAL(cuMemHostGetDevicePointer);
    EMM_CUDA_OPTIONAL(cuMemHostRegister);
    EMM_CUDA_OPTIONAL(cuMemHostUnregister);
    EMM_CUDA_OPTIONAL(cuMemAllocManaged);
    EMM_CUDA_OPTIONAL(cuPointerGetAttribute);
    EMM_CUDA_OPTIONAL(cuPointerGetAttributes);
    EMM_CUDA_OPTIONAL(cuPointerSetAttribute);
    EMM_CUDA_OPTIONAL(cuMemAddressReserve);
    EMM_CUDA_OPTIONAL(cuMemAddressFree);
    EMM_CUDA_OPTIONAL(cuMemCreate);
    EMM_CUDA_OPTIONAL(cuMemRelease);
    EMM_CUDA_OPTIONAL(cuMemMap);
    EMM_CUDA_OPTIONAL(cuMemUnmap);
    EMM_CUDA_OPTIONAL(cuMemSetAccess);
    EMM_CUDA_OPTIONAL(cuMemGetAccess);
    EMM_CUDA_OPTIONAL(cuMemGetAllocationGranularity);
    EMM_CUDA_OPTIONAL(cuMemRetainAllocationHandle);
    EMM_CUDA_OPTIONAL(cuMemExportToShareableHandle);
    EMM_CUDA_OPTIONAL(cuMemImportFromShareableHandle);
    EMM_CUDA_OPTIONAL(cuMemAllocAsync);
    EMM_CUDA_OPTIONAL(cuMemAllocFromPoolAsync);
    EMM_CUDA_OPTIONAL(cuMemFreeAsync);
    EMM_CUDA_OPTIONAL(cuMemPoolCreate);
    EMM_CUDA_OPTIONAL(cuMemPoolDestroy);
    EMM_CUDA_OPTIONAL(cuMemPoolSetAttribute);
    EMM_CUDA_OPTIONAL(cuMemPoolGetAttribute);
    EMM_CUDA_OPTIONAL(cuMemPoolTrimTo);
    EMM_CUDA_OPTIONAL(cuDeviceGetDefaultMemPool);
    EMM_CUDA_OPTIONAL(cuDeviceGetMemPool);
    EMM_CUDA_OPTIONAL(cuDeviceSetMemPool);
    EMM_CUDA_OPTIONAL(cuIpcGetMemHandle);
    EMM_CUDA_OPTIONAL(cuIpcOpenMemHandle);
    EMM_CUDA_OPTIONAL(cuIpcCloseMemHandle);
    EMM_CUDA_OPTIONAL(cuMemPoolExportToShareableHandle);
    EMM_CUDA_OPTIONAL(cuMemPoolImportFromShareableHandle);
    EMM_CUDA_OPTIONAL(cuMemPoolExportPointer);
    EMM_CUDA_OPTIONAL(cuMemPoolImportPointer);
    EMM_CUDA_OPTIONAL(cuArrayCreate);
    EMM_CUDA_OPTIONAL(cuArray3DCreate);
    EMM_CUDA_OPTIONAL(cuArrayGetDescriptor);
    EMM_CUDA_OPTIONAL(cuArrayDestroy);
    EMM_CUDA_OPTIONAL(cuMipmappedArrayCreate);
    EMM_CUDA_OPTIONAL(cuGraphAddEmptyNode);
    EMM_CUDA_OPTIONAL(cuGraphAddMemAllocNode);
    EMM_CUDA_OPTIONAL(cuGraphAddMemFreeNode);
    EMM_CUDA_OPTIONAL(cuMemcpy);
    EMM_CUDA_OPTIONAL(cuMemcpyHtoD);
    EMM_CUDA_OPTIONAL(cuMemcpyDtoH);
    EMM_CUDA_OPTIONAL(cuMemcpyHtoDAsync);
    EMM_CUDA_OPTIONAL(cuMemcpyDtoHAsync);
    EMM_CUDA_OPTIONAL(cuMemcpyDtoDAsync);
    EMM_CUDA_OPTIONAL(cuMemsetD8);
    EMM_CUDA_OPTIONAL(cuMemsetD32);
    EMM_CUDA_OPTIONAL(cuMemsetD8Async);
    EMM_CUDA_OPTIONAL(cuMemsetD32Async);
    EMM_CUDA_OPTIONAL(cuStreamCreate);
    EMM_CUDA_OPTIONAL(cuStreamDestroy);
    EMM_CUDA_OPTIONAL(cuStreamGetId);
    EMM_CUDA_OPTIONAL(cuStreamGetCtx);
    EMM_CUDA_OPTIONAL(cuStreamGetFlags);
    EMM_CUDA_OPTIONAL(cuStreamQuery);
    EMM_CUDA_OPTIONAL(cuStreamSynchronize);
    EMM_CUDA_OPTIONAL(cuStreamWaitEvent);
    EMM_CUDA_OPTIONAL(cuLaunchHostFunc);
    EMM_CUDA_OPTIONAL(cuStreamBeginCapture);
    EMM_CUDA_OPTIONAL(cuStreamEndCapture);
    EMM_CUDA_OPTIONAL(cuStreamIsCapturing);
    EMM_CUDA_OPTIONAL(cuThreadExchangeStreamCaptureMode);
    EMM_CUDA_OPTIONAL(cuEventCreate);
    EMM_CUDA_OPTIONAL(cuEventRecord);
    EMM_CUDA_OPTIONAL(cuEventQuery);
    EMM_CUDA_OPTIONAL(cuEventSynchronize);
    EMM_CUDA_OPTIONAL(cuEventDestroy);
    EMM_CUDA_OPTIONAL(cuGraphCreate);
    EMM_CUDA_OPTIONAL(cuGraphClone);
    EMM_CUDA_OPTIONAL(cuGraphDestroy);
    EMM_CUDA_OPTIONAL(cuGraphGetNodes);
    EMM_CUDA_OPTIONAL(cuGraphInstantiateWithFlags);
    EMM_CUDA_OPTIONAL(cuGraphExecUpdate);
    EMM_CUDA_OPTIONAL(cuGraphLaunch);
    EMM_CUDA_OPTIONAL(cuGraphExecDestroy);
    EMM_CUDA_OPTIONAL(cuUserObjectCreate);
    EMM_CUDA_OPTIONAL(cuUserObjectRelease);
    EMM_CUDA_OPTIONAL(cuGraphRetainUserObject);

    // Entries whose signature depends on the header, or that the header may lack.
    emm_cuCtxCreate_3020 create_context = optional<emm_cuCtxCreate_3020>("cuCtxCreate", 3020);
    emm_cuCtxRecordEvent_12050 record_context =
        optional<emm_cuCtxRecordEvent_12050>("cuCtxRecordEvent", 12050);
    CUresult (*get_proc_address)(const char *, void **, int, cuuint64_t, int *) = nullptr;

    // The simulator's own entries, NULL on another driver.
    decltype(&simcuda_get_counters) get_counters = nullptr;
    decltype(&simcuda_call_count) call_count = nullptr;
    decltype(&simcuda_last_race) last_race = nullptr;
    decltype(&simcuda_configure) configure = nullptr;
    decltype(&simcuda_fail) fail = nullptr;
    decltype(&simcuda_launch) launch = nullptr, launch_programmatic = nullptr;
    decltype(&simcuda_reset_peaks) reset_peaks = nullptr;
    decltype(&simcuda_work) work = nullptr;

    bool simulated() const { return get_counters != nullptr; }
};

// The driver, opened on the first call and not yet initialised.
const CudaDriver &cu();
