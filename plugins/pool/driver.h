// The driver's entries that the pool calls, asked of the host by name and version.
#pragma once

#include "lock.h"

#include <cuda.h>
#include <emm/plugin.hpp>

namespace emm::pool {

// Entries without which there is no pool.
#define EMM_POOL_REQUIRED(entry)                                                                   \
    entry(cuMemAlloc) entry(cuMemFree) entry(cuMemGetInfo) entry(cuCtxPushCurrent)                 \
        entry(cuCtxPopCurrent) entry(cuCtxGetCurrent) entry(cuCtxSynchronize) entry(cuStreamGetId) \
            entry(cuCtxGetId) entry(cuStreamIsCapturing) entry(cuStreamWaitEvent)                  \
                entry(cuEventCreate) entry(cuEventDestroy) entry(cuEventRecord)                    \
                    entry(cuEventQuery) entry(cuEventSynchronize)                                  \
                        entry(cuThreadExchangeStreamCaptureMode)

// Entries without which one feature is refused.
#define EMM_POOL_OPTIONAL(entry)                                                                   \
    entry(cuUserObjectCreate) entry(cuUserObjectRelease) entry(cuGraphRetainUserObject)            \
        entry(cuDeviceCanAccessPeer) entry(cuDevicePrimaryCtxRetain)                               \
            entry(cuDevicePrimaryCtxRelease) entry(cuCtxEnablePeerAccess)                          \
                entry(cuCtxDisablePeerAccess) entry(cuMemHostAlloc) entry(cuMemFreeHost)           \
                    entry(cuMemHostGetDevicePointer) entry(cuStreamQuery) entry(cuStreamGetFlags)  \
                        entry(cuMemAddressReserve) entry(cuMemAddressFree) entry(cuMemCreate)      \
                            entry(cuMemRelease) entry(cuMemMap) entry(cuMemUnmap)                  \
                                entry(cuMemSetAccess) entry(cuIpcGetMemHandle)                     \
                                    entry(cuDeviceGetAttribute) entry(cuDeviceTotalMem)

struct Driver {
#define EMM_POOL_ENTRY(name) Entry<decltype(&::name)> name;
    EMM_POOL_REQUIRED(EMM_POOL_ENTRY)
    EMM_POOL_OPTIONAL(EMM_POOL_ENTRY)
#undef EMM_POOL_ENTRY

    // Spelt out: their names stand for other signatures, or for none, in some versions of cuda.h.
    Entry<CUresult(CUDAAPI *)(CUcontext, CUevent)> record_context_event; // since CUDA 12.5
    Entry<CUresult(CUDAAPI *)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *,
                              const CUgraphNode **, size_t *)>
        capture_info;
    Entry<CUresult(CUDAAPI *)(CUstream, CUcontext *)> stream_context;
    Entry<CUresult(CUDAAPI *)(CUstream, CUcontext *, struct CUgreenCtx_st **)> stream_context_12050;

    // Throws PluginError if a required entry is missing.
    explicit Driver(const emm_host &host);

    bool is_alive(CUcontext context, uint64_t id) const;

    // Whether `stream`, which lives, is known to belong to another context.
    bool is_foreign(CUcontext context, CUstream stream) const;

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

// The device can do nothing more in this context.
bool is_sticky(CUresult result);

// The context, or the whole driver, is gone, and with it what was to be freed or waited for.
bool is_gone(CUresult result);

// A context that is alive is current while this lives. The driver crashes when it is handed a
// context that has died, so it is asked for its id first. Asking which one is current costs a
// quarter of making one current.
class Current {
public:
    Current(const Driver &driver, CUcontext context, uint64_t id) : driver_(driver) {
        unsigned long long now = 0;
        result_ = driver.cuCtxGetId(context, &now);
        if (result_ == CUDA_SUCCESS && now != id) {
            result_ = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        CUcontext current = nullptr;
        if (result_ == CUDA_SUCCESS &&
            (driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context)) {
            result_ = driver.cuCtxPushCurrent(context);
            pushed_ = result_ == CUDA_SUCCESS;
        }
    }
    ~Current() {
        CUcontext popped = nullptr;
        if (pushed_) {
            driver_.cuCtxPopCurrent(&popped);
        }
    }
    Current(const Current &) = delete;
    Current &operator=(const Current &) = delete;
    CUresult result() const { return result_; }

private:
    const Driver &driver_;
    CUresult result_;
    bool pushed_ = false;
};

// Calls that would invalidate a capture in progress on some other stream do not while this lives.
class Relaxed {
public:
    explicit Relaxed(const Driver &driver) : driver_(driver) {
        driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    }
    ~Relaxed() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
    Relaxed(const Relaxed &) = delete;
    Relaxed &operator=(const Relaxed &) = delete;

private:
    const Driver &driver_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

} // namespace emm::pool
