#pragma once

#include <emm/cuda.h>
#include <emm/plugin.hpp>

namespace emm::common {

// Throws PluginError with a text formatted as by snprintf.
[[noreturn, gnu::format(printf, 2, 3)]] void refuse(emm_status status, const char *format, ...);

// The driver's entries used here. The driver may be the simulated one: no CUDA library is linked.
struct Driver : cuda::Entries {
    explicit Driver(const emm_host &host); // throws if one is missing

    EMM_CUDA_REQUIRED(cuGetErrorName);
    EMM_CUDA_REQUIRED(cuCtxGetId);
    EMM_CUDA_REQUIRED(cuMemAlloc);
    EMM_CUDA_REQUIRED(cuMemFree);
    EMM_CUDA_REQUIRED(cuThreadExchangeStreamCaptureMode);
    EMM_CUDA_REQUIRED(cuUserObjectCreate);
    EMM_CUDA_REQUIRED(cuUserObjectRelease);
    EMM_CUDA_REQUIRED(cuGraphRetainUserObject);
    emm_cuStreamGetCaptureInfo_12000 get_capture_info =
        required<emm_cuStreamGetCaptureInfo_12000>("cuStreamGetCaptureInfo", 12000);
    emm_cuStreamGetCtx_12000 get_stream_context_12000 =
        required<emm_cuStreamGetCtx_12000>("cuStreamGetCtx", 12000);
    emm_cuStreamGetCtx_12050 get_stream_context = // NULL before CUDA 12.5
        optional<emm_cuStreamGetCtx_12050>("cuStreamGetCtx", 12050);

    // Whether the context is still the one that a manager was made for: ids are never reused,
    // handles are.
    bool is_alive(CUcontext context, uint64_t id) const noexcept;

    // Throws if `stream` is known to belong to another context: no order exists between its work
    // and this context's, and no wait here covers it. If the stream's capture was invalidated, the
    // driver does not tell the context; such a stream counts as the context's own.
    void expect_own(CUcontext context, emm_stream stream) const;

    // Throws if the driver lacks a required entry.
    void expect_complete() const;

    // Throws "`what` failed: NAME (n)" with the matching status.
    [[noreturn]] void fail(CUresult result, const char *what) const;
    void check(CUresult result, const char *what) const {
        if (result != CUDA_SUCCESS) {
            fail(result, what);
        }
    }
};

// The entries for private streams and for waiting for a context, in addition to those of Driver.
struct StreamDriver : Driver {
    explicit StreamDriver(const emm_host &host) : Driver(host) { expect_complete(); }

    EMM_CUDA_REQUIRED(cuStreamCreate);
    EMM_CUDA_REQUIRED(cuStreamDestroy);
    EMM_CUDA_REQUIRED(cuStreamSynchronize);
    EMM_CUDA_REQUIRED(cuStreamWaitEvent);
    EMM_CUDA_REQUIRED(cuEventCreate);
    EMM_CUDA_REQUIRED(cuEventDestroy);
    EMM_CUDA_REQUIRED(cuCtxSynchronize);
    EMM_CUDA_REQUIRED(cuMemGetInfo);
    EMM_CUDA_REQUIRED(cuMemHostAlloc);
    EMM_CUDA_REQUIRED(cuMemFreeHost);
    emm_cuCtxRecordEvent_12050 record_context_event = // NULL before CUDA 12.5
        optional<emm_cuCtxRecordEvent_12050>("cuCtxRecordEvent", 12050);
};

using cuda::is_late;
using cuda::is_returned;
using RelaxedCapture = cuda::RelaxedCapture<Driver>;

} // namespace emm::common
