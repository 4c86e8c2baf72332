// The driver's entries that the pool calls, asked of the host by name and version.
#pragma once

#include "lock.h"

#include <emm/cuda.h>
#include <emm/plugin.hpp>

namespace emm::pool {

// Like EMM_CUDA_REQUIRED and EMM_CUDA_OPTIONAL, but each call is checked: no lock may be held.
#define EMM_POOL_REQUIRED(name)                                                                    \
    Entry<EMM_CUDA_TYPE(name)> name {                                                              \
        required<EMM_CUDA_TYPE(name)>(#name, EMM_CUDA_SIGNATURES), #name                           \
    }
#define EMM_POOL_OPTIONAL(name)                                                                    \
    Entry<EMM_CUDA_TYPE(name)> name {                                                              \
        optional<EMM_CUDA_TYPE(name)>(#name, EMM_CUDA_SIGNATURES), #name                           \
    }

struct Driver : cuda::Entries {
    // Throws PluginError if a required entry is missing.
    explicit Driver(const emm_host &host);

    EMM_CUDA_REQUIRED(cuGetErrorName); // locks may be held
    EMM_POOL_REQUIRED(cuMemAlloc);
    EMM_POOL_REQUIRED(cuMemFree);
    EMM_POOL_REQUIRED(cuMemGetInfo);
    EMM_POOL_REQUIRED(cuCtxPushCurrent);
    EMM_POOL_REQUIRED(cuCtxPopCurrent);
    EMM_POOL_REQUIRED(cuCtxGetCurrent);
    EMM_POOL_REQUIRED(cuCtxSynchronize);
    EMM_POOL_REQUIRED(cuStreamGetId);
    EMM_POOL_REQUIRED(cuCtxGetId);
    EMM_POOL_REQUIRED(cuStreamIsCapturing);
    EMM_POOL_REQUIRED(cuStreamWaitEvent);
    EMM_POOL_REQUIRED(cuEventCreate);
    EMM_POOL_REQUIRED(cuEventDestroy);
    EMM_POOL_REQUIRED(cuEventRecord);
    EMM_POOL_REQUIRED(cuEventQuery);
    EMM_POOL_REQUIRED(cuEventSynchronize);
    EMM_POOL_REQUIRED(cuThreadExchangeStreamCaptureMode);

    // If one of these is missing, a feature is refused.
    EMM_POOL_OPTIONAL(cuUserObjectCreate);
    EMM_POOL_OPTIONAL(cuUserObjectRelease);
    EMM_POOL_OPTIONAL(cuGraphRetainUserObject);
    EMM_POOL_OPTIONAL(cuDeviceCanAccessPeer);
    EMM_POOL_OPTIONAL(cuDevicePrimaryCtxRetain);
    EMM_POOL_OPTIONAL(cuDevicePrimaryCtxRelease);
    EMM_POOL_OPTIONAL(cuCtxEnablePeerAccess);
    EMM_POOL_OPTIONAL(cuCtxDisablePeerAccess);
    EMM_POOL_OPTIONAL(cuMemHostAlloc);
    EMM_POOL_OPTIONAL(cuMemFreeHost);
    EMM_POOL_OPTIONAL(cuMemHostGetDevicePointer);
    EMM_POOL_OPTIONAL(cuStreamCreate);
    EMM_POOL_OPTIONAL(cuStreamDestroy);
    EMM_POOL_OPTIONAL(cuStreamSynchronize);
    EMM_POOL_OPTIONAL(cuMemcpyDtoHAsync);
    EMM_POOL_OPTIONAL(cuMemcpyHtoDAsync);
    EMM_POOL_OPTIONAL(cuStreamQuery);
    EMM_POOL_OPTIONAL(cuStreamGetFlags);
    EMM_POOL_OPTIONAL(cuMemAddressReserve);
    EMM_POOL_OPTIONAL(cuMemAddressFree);
    EMM_POOL_OPTIONAL(cuMemCreate);
    EMM_POOL_OPTIONAL(cuMemRelease);
    EMM_POOL_OPTIONAL(cuMemMap);
    EMM_POOL_OPTIONAL(cuMemUnmap);
    EMM_POOL_OPTIONAL(cuMemSetAccess);
    EMM_POOL_OPTIONAL(cuIpcGetMemHandle);
    EMM_POOL_OPTIONAL(cuDeviceGetAttribute);
    EMM_POOL_OPTIONAL(cuDeviceTotalMem);
    Entry<emm_cuCtxRecordEvent_12050> record_context_event{
        optional<emm_cuCtxRecordEvent_12050>("cuCtxRecordEvent", 12050), "cuCtxRecordEvent"};
    Entry<emm_cuStreamGetCaptureInfo_12000> capture_info{
        optional<emm_cuStreamGetCaptureInfo_12000>("cuStreamGetCaptureInfo", 12000),
        "cuStreamGetCaptureInfo"};
    Entry<emm_cuStreamGetCtx_12000> get_stream_context_12000{
        optional<emm_cuStreamGetCtx_12000>("cuStreamGetCtx", 12000), "cuStreamGetCtx"};
    Entry<emm_cuStreamGetCtx_12050> get_stream_context{
        optional<emm_cuStreamGetCtx_12050>("cuStreamGetCtx", 12050), "cuStreamGetCtx"};

    bool is_alive(CUcontext context, uint64_t id) const;

    bool serves_captures() const {
        return cuUserObjectCreate && cuUserObjectRelease && cuGraphRetainUserObject && capture_info;
    }
    bool serves_host() const {
        return cuMemHostAlloc && cuMemFreeHost && cuMemHostGetDevicePointer;
    }
    bool serves_pages() const {
        return cuMemAddressReserve && cuMemAddressFree && cuMemCreate && cuMemRelease && cuMemMap &&
               cuMemUnmap && cuMemSetAccess;
    }
    bool serves_peers() const {
        return cuDeviceCanAccessPeer && cuDevicePrimaryCtxRetain && cuDevicePrimaryCtxRelease &&
               cuCtxEnablePeerAccess && cuCtxDisablePeerAccess;
    }
};

// Whether the context, or the whole driver, is gone. Then there is nothing left to free or to wait
// for.
bool is_gone(CUresult result);

// The pool itself has no memory for a request, within `max` or `host_max` or at the wanted place.
// Not a result of CUDA.
constexpr auto no_memory_of_pool = CUresult(1000);

constexpr bool is_exhausted(CUresult result) {
    return result == CUDA_ERROR_OUT_OF_MEMORY || result == no_memory_of_pool;
}
// The driver's answer, for an error text.
constexpr int32_t answer_of_driver(CUresult result) {
    return result == no_memory_of_pool ? 0 : int32_t(result);
}

using cuda::is_returned;
using cuda::is_sticky;
using Current = cuda::Current<Driver>;

#undef EMM_POOL_REQUIRED
#undef EMM_POOL_OPTIONAL

} // namespace emm::pool
