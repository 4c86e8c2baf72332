// The CUDA contexts of the program, and emm's record of each.
#pragma once

#include "call.h"

#include <emm/cuda.h>
#include <emm/emm.h>

#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace emm::run {

// The driver's entries that emm does not serve.
struct Driver : cuda::Entries {
    Driver() : Entries(&emm_driver_entry) {}

    EMM_CUDA_REQUIRED(cuCtxGetCurrent);
    EMM_CUDA_REQUIRED(cuCtxGetDevice);
    EMM_CUDA_REQUIRED(cuCtxPushCurrent);
    EMM_CUDA_REQUIRED(cuCtxPopCurrent);
    EMM_CUDA_REQUIRED(cuCtxSynchronize);
    EMM_CUDA_REQUIRED(cuDeviceCanAccessPeer);
    EMM_CUDA_REQUIRED(cuDeviceGet);
    EMM_CUDA_REQUIRED(cuDeviceGetCount);
    EMM_CUDA_REQUIRED(cuDeviceGetDefaultMemPool);
    EMM_CUDA_REQUIRED(cuDeviceGetUuid);
    EMM_CUDA_REQUIRED(cuEventCreate);
    EMM_CUDA_REQUIRED(cuEventDestroy);
    EMM_CUDA_REQUIRED(cuEventQuery);
    EMM_CUDA_REQUIRED(cuEventRecord);
    EMM_CUDA_REQUIRED(cuEventSynchronize);
    EMM_CUDA_REQUIRED(cuStreamIsCapturing);
    EMM_CUDA_REQUIRED(cuStreamSynchronize);
    EMM_CUDA_REQUIRED(cuStreamWaitEvent);
    EMM_CUDA_REQUIRED(cuGraphAddEmptyNode);
    EMM_CUDA_REQUIRED(cuGraphRetainUserObject);
    EMM_CUDA_REQUIRED(cuMemAddressFree);
    EMM_CUDA_REQUIRED(cuMemAddressReserve);
    EMM_CUDA_REQUIRED(cuMemcpyDtoHAsync);
    EMM_CUDA_REQUIRED(cuMemcpyHtoDAsync);
    EMM_CUDA_REQUIRED(cuMemGetAccess);
    EMM_CUDA_REQUIRED(cuMemGetAddressRange);
    EMM_CUDA_REQUIRED(cuMemSetAccess);
    EMM_CUDA_REQUIRED(cuMemsetD8Async);
    EMM_CUDA_REQUIRED(cuPointerGetAttribute);
    EMM_CUDA_REQUIRED(cuThreadExchangeStreamCaptureMode);
    EMM_CUDA_REQUIRED(cuUserObjectCreate);
    EMM_CUDA_REQUIRED(cuUserObjectRelease);
    emm_cuStreamGetCaptureInfo_12000 get_capture_info =
        required<emm_cuStreamGetCaptureInfo_12000>("cuStreamGetCaptureInfo", 11030);
    emm_cuCtxRecordEvent_12050 record_context_event = // NULL before CUDA 12.5
        optional<emm_cuCtxRecordEvent_12050>("cuCtxRecordEvent", 12050);
    CUresult(CUDAAPI *context_of_green)(CUcontext *, CUgreenCtx_st *) =
        optional<CUresult(CUDAAPI *)(CUcontext *, CUgreenCtx_st *)>("cuCtxFromGreenCtx", 12040);
};

using Relaxed = cuda::RelaxedCapture<Driver>;
using Current = cuda::PushedContext<Driver>;

CUcontext cuda_of(emm_context *context);         // NULL: the context has ended
int32_t device_of_context(emm_context *context); // -1: likewise

// emm serves the context from now on. The program's settings for its device hold there, too.
void context_begins(emm_context *context);

class Contexts {
public:
    explicit Contexts(const Driver &driver) : driver_(driver) {}

    const Driver &driver() const { return driver_; }

    // emm's record of the calling thread's current context, made on first use. NULL: the thread has
    // no context, or emm does not serve it, and the driver answers; `ret_status` says why.
    // `ret_green`: the context is green, and the record is that of its primary context.
    emm_context *current(emm_status &ret_status) {
        bool is_green = false;
        return current(ret_status, is_green);
    }
    emm_context *current(emm_status &ret_status, bool &ret_green);

    // The record of any context, made on first use; the record if it exists already, else NULL.
    emm_context *of(CUcontext context, emm_status &ret_status);
    emm_context *known(CUcontext context);
    emm_context *known_on(CUdevice device); // any of the device
    std::vector<emm_context *> all_on(CUdevice device);

    // The device's context that is likely to live longest: the primary context, if the program has
    // retained it, else any served context. NULL: no context is served there.
    emm_context *lasting_on(CUdevice device);
    std::vector<emm_context *> all();
    std::vector<CUcontext> all_cuda(); // with green contexts, and those without a record

    // While the lock is held, no context ends: for calls about a context that may be another
    // thread's.
    class Kept {
    public:
        explicit Kept(std::shared_mutex &ending) : lock_(ending) {}

    private:
        const std::shared_lock<std::shared_mutex> lock_;
        const Turn::Locked locked_;
    };
    Kept keep() { return Kept(ending_); }

    // The context is about to end: waits for its work, and gives up emm's memory there. Gives its
    // record, or NULL.
    emm_context *end(CUcontext context);
    void wait_for_work_of(CUcontext context) const;

    // A context that was attached to ends with as many detachments more. True: this detachment is
    // the last.
    void count_attach(CUcontext context);
    bool count_detach(CUcontext context);

    // A primary context ends with as many releases as it was retained, by the program or by its
    // green contexts. The caller holds the device's mutex until the driver has released it. True:
    // this release is the last.
    struct Retained {
        CUcontext context = nullptr; // NULL: the program has not retained it
        unsigned count = 0;
        uint64_t latest = 0; // number of the latest retain
    };
    std::mutex &primary_mutex(CUdevice device);
    void count_retain(CUdevice device, CUcontext context);
    bool count_release(CUdevice device);
    Retained retained_on(CUdevice device);
    bool is_retained(CUcontext context);

    // A green context, its handle as a CUcontext, and its device. False: emm does not know the
    // handle.
    struct Green {
        CUcontext context = nullptr;
        CUdevice device = 0;
    };
    void green_made(CUgreenCtx_st *handle, const Green &green);
    bool find_green(CUgreenCtx_st *handle, Green &ret_green);
    void green_ends(CUgreenCtx_st *handle); // another context may get the handles

    // Changes whenever a context or stream ends, and a handle may come back for another.
    uint64_t epoch() const { return epoch_.load(std::memory_order_acquire); }
    void begin_epoch() { epoch_.fetch_add(1, std::memory_order_acq_rel); }

private:
    const Driver &driver_;
    std::atomic<uint64_t> epoch_{1};
    std::shared_mutex ending_; // taken before the other mutex
    std::mutex mutex_;
    std::map<CUcontext, emm_context *> known_;
    std::map<CUdevice, std::mutex> primary_mutexes_;
    std::map<CUdevice, Retained> retained_;
    uint64_t retains_ = 0;
    std::map<CUcontext, unsigned> attached_;
    std::map<CUgreenCtx_st *, Green> greens_;
};

} // namespace emm::run
