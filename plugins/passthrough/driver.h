#pragma once

#include <emm/plugin.hpp>

#include <cuda.h>

namespace emm::passthrough {

// The entry `name` as CUDA `version` has it (12000 is 12.0), from the driver in use, which may be a
// simulated one: no CUDA library is linked. Leaves NULL if this driver has none.
template <class Function>
void find_entry(const emm_host &host, const char *name, Function &ret_entry, int version = 12000) {
    ret_entry = reinterpret_cast<Function>(host.driver(name, version));
}

// The same for an entry without which there is no point in going on.
template <class Function>
void require_entry(const emm_host &host, const char *name, Function &ret_entry) {
    find_entry(host, name, ret_entry);
    if (!ret_entry) {
        char text[128];
        snprintf(text, sizeof text, "the driver has no %s, which CUDA 12.0 and later have", name);
        throw PluginError(EMM_E_NO_DRIVER, 0, text);
    }
}

// cuda.h may know these entries by another signature only.
using GetStreamContext9020 = CUresult (*)(CUstream, CUcontext *);
using GetStreamContext12050 = CUresult (*)(CUstream, CUcontext *, struct CUgreenCtx_st **);
using GetCaptureInfo12000 = CUresult (*)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *,
                                         const CUgraphNode **, size_t *);

// The driver's entries in use here, each with its CUDA 12.0 signature.
struct Driver {
    explicit Driver(const emm_host &host);

    decltype(&::cuGetErrorName) cuGetErrorName;
    decltype(&::cuCtxGetId) cuCtxGetId;
    decltype(&::cuMemAlloc) cuMemAlloc;
    decltype(&::cuMemFree) cuMemFree;
    decltype(&::cuThreadExchangeStreamCaptureMode) cuThreadExchangeStreamCaptureMode;
    decltype(&::cuUserObjectCreate) cuUserObjectCreate;
    decltype(&::cuUserObjectRelease) cuUserObjectRelease;
    decltype(&::cuGraphRetainUserObject) cuGraphRetainUserObject;
    GetCaptureInfo12000 get_capture_info;
    GetStreamContext9020 get_stream_context;
    GetStreamContext12050 get_stream_context_12050; // NULL before CUDA 12.5

    // The context is still the one that a manager was made for: ids never come back, handles do.
    bool is_alive(CUcontext context, uint64_t id) const noexcept;

    // Throws if `stream` is known to belong to another context: its work is in no order with that
    // of this one, and no wait here covers it.
    void expect_own(CUcontext context, emm_stream stream) const;

    // Throws "`what` failed: NAME (n)" with the status that fits.
    [[noreturn]] void fail(CUresult result, const char *what) const;
    void check(CUresult result, const char *what) const {
        if (result != CUDA_SUCCESS) {
            fail(result, what);
        }
    }
};

// A free that comes after the driver has gone, or after the context died, has nothing left to do.
inline bool is_late(CUresult result) noexcept {
    return result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// While this lives, driver calls of this thread invalidate no capture of any stream: cuMemAlloc,
// cuMemFree and many others otherwise do while some stream captures in global mode.
class RelaxedCapture {
public:
    explicit RelaxedCapture(const Driver &driver) : driver_(driver) {
        driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    }
    ~RelaxedCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
    RelaxedCapture(const RelaxedCapture &) = delete;
    RelaxedCapture &operator=(const RelaxedCapture &) = delete;

private:
    const Driver &driver_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

} // namespace emm::passthrough
