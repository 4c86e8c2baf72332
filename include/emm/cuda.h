/*
 * emm/cuda.h: typed access to the CUDA driver through `host->driver` (or emm_driver_entry), for
 * plugins and programs that have cuda.h of CUDA 12.0 or later. C99 with __typeof__, and C++11.
 * Inline, nothing to link: the names of cuda.h give types here, never symbols. Any thread may call
 * these functions. An entry lives as long as the process.
 *
 * In C:
 *     EMM_CUDA_TYPE(cuMemAlloc) mem_alloc = EMM_CUDA_FIND(host->driver, cuMemAlloc);
 *
 * (Write the name itself there. The argument of a macro of your own would be expanded first, to
 * cuMemAlloc_v2, which is no name to ask for.)
 *
 * In C++, a table of entries is a struct with a line for each entry:
 *     struct Driver : emm::cuda::Entries {
 *         explicit Driver(const emm_host &host) : Entries(host.driver) {}
 *         EMM_CUDA_REQUIRED(cuMemAlloc);
 *         EMM_CUDA_OPTIONAL(cuMemCreate); // NULL if the driver has no such entry
 *     };
 *     const Driver driver(*host);
 *     if (driver.missing()) ...           // the name of a required entry that the driver lacks
 *     driver.cuMemAlloc(&ptr, size);
 */
#ifndef EMM_CUDA_H
#define EMM_CUDA_H

#include <emm/plugin.h>

#include <cuda.h>

/* The signatures to ask for: those of CUDA 12.0, the oldest release that emm runs on. */
#define EMM_CUDA_SIGNATURES 12000

#if defined(__cplusplus)
#define EMM_CUDA_TYPE(name) decltype(&::name)
#define EMM_CUDA_FIND(driver, name)                                                                \
    (reinterpret_cast<EMM_CUDA_TYPE(name)>((driver)(#name, EMM_CUDA_SIGNATURES)))
#else
#define EMM_CUDA_TYPE(name) __typeof__(&name)
#define EMM_CUDA_FIND(driver, name) ((EMM_CUDA_TYPE(name))(driver)(#name, EMM_CUDA_SIGNATURES))
#endif

/* In some releases of cuda.h, the names of these entries stand for another signature, or do not
 * exist. The number is the CUDA version to ask for. */
struct CUgreenCtx_st;
typedef CUresult(CUDAAPI *emm_cuCtxCreate_3020)(CUcontext *, unsigned, CUdevice);
typedef CUresult(CUDAAPI *emm_cuCtxRecordEvent_12050)(CUcontext, CUevent);
typedef CUresult(CUDAAPI *emm_cuStreamGetCaptureInfo_12000)(CUstream, CUstreamCaptureStatus *,
                                                            cuuint64_t *, CUgraph *,
                                                            const CUgraphNode **, size_t *);
typedef CUresult(CUDAAPI *emm_cuStreamGetCtx_12000)(CUstream, CUcontext *);
typedef CUresult(CUDAAPI *emm_cuStreamGetCtx_12050)(CUstream, CUcontext *, struct CUgreenCtx_st **);

#ifdef __cplusplus
namespace emm {
namespace cuda {

using Find = emm_function (*)(const char *name, int32_t cuda_version);

/* The base of a struct of entries: finds each entry while its member is initialised. */
class Entries {
public:
    explicit Entries(Find find) : find_(find), missing_(nullptr) {}
    const char *missing() const { return missing_; }

protected:
    template <class Function> Function optional(const char *name, int32_t version) const {
        return reinterpret_cast<Function>(find_(name, version));
    }
    template <class Function> Function required(const char *name, int32_t version) {
        const Function found = optional<Function>(name, version);
        if (!found && !missing_) {
            missing_ = name;
        }
        return found;
    }

private:
    Find find_;
    const char *missing_;
};

#define EMM_CUDA_REQUIRED(name)                                                                    \
    EMM_CUDA_TYPE(name) name = this->required<EMM_CUDA_TYPE(name)>(#name, EMM_CUDA_SIGNATURES)
#define EMM_CUDA_OPTIONAL(name)                                                                    \
    EMM_CUDA_TYPE(name) name = this->optional<EMM_CUDA_TYPE(name)>(#name, EMM_CUDA_SIGNATURES)

/* After one of these errors the context answers every call with an error. Older releases of cuda.h
 * lack some names, hence the numbers. */
inline bool is_sticky(CUresult result) noexcept {
    switch (static_cast<int>(result)) {
    case 46:  /* CUDA_ERROR_DEVICE_UNAVAILABLE */
    case 214: /* CUDA_ERROR_ECC_UNCORRECTABLE */
    case 220: /* CUDA_ERROR_NVLINK_UNCORRECTABLE */
    case 226: /* CUDA_ERROR_CONTAINED */
    case 700: /* CUDA_ERROR_ILLEGAL_ADDRESS */
    case 702: /* CUDA_ERROR_LAUNCH_TIMEOUT */
    case 710: /* CUDA_ERROR_ASSERT */
    case 714: /* CUDA_ERROR_HARDWARE_STACK_ERROR */
    case 715: /* CUDA_ERROR_ILLEGAL_INSTRUCTION */
    case 716: /* CUDA_ERROR_MISALIGNED_ADDRESS */
    case 717: /* CUDA_ERROR_INVALID_ADDRESS_SPACE */
    case 718: /* CUDA_ERROR_INVALID_PC */
    case 719: /* CUDA_ERROR_LAUNCH_FAILED */
    case 721: /* CUDA_ERROR_TENSOR_MEMORY_LEAK */
    case 810: /* CUDA_ERROR_MPS_CLIENT_TERMINATED */
    case 911: /* CUDA_ERROR_EXTERNAL_DEVICE */
        return true;
    default:
        return false;
    }
}

/* The driver or the context has gone, with the memory that was to be freed: nothing to report. */
inline bool is_late(CUresult result) noexcept {
    return result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Whether a free needs no second try: the free is done, or the driver does not know the memory. By
 * the time of a second try the address may belong to another allocation. */
inline bool is_returned(CUresult result) noexcept {
    return result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE || is_late(result);
}

/* The status for a driver's result. `invalid` is the meaning of CUDA_ERROR_INVALID_VALUE there. */
inline emm_status status_of(CUresult result, emm_status invalid = EMM_E_DRIVER) noexcept {
    switch (result) {
    case CUDA_SUCCESS:
        return EMM_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return EMM_E_OUT_OF_MEMORY;
    case CUDA_ERROR_INVALID_VALUE:
        return invalid;
    case CUDA_ERROR_NOT_SUPPORTED:
        return EMM_E_NOT_SUPPORTED;
    case CUDA_ERROR_DEINITIALIZED:
        return EMM_E_SHUT_DOWN;
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        return EMM_E_RETIRED;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
        return EMM_E_CAPTURING;
    default:
        return is_sticky(result) ? EMM_E_DEVICE_LOST : EMM_E_DRIVER;
    }
}

/* The rest takes a struct of entries with the members that each part uses. */

/* "CUDA_ERROR_OUT_OF_MEMORY", which lives as long as the driver. Any thread may call this. */
template <class Driver> const char *error_name(const Driver &driver, CUresult result) noexcept {
    const char *name = nullptr;
    return driver.cuGetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "CUDA error";
}

/*
 * CUDA_SUCCESS if `context` still means the context that had this id (cuCtxGetId). The driver
 * crashes on other calls with the handle of a dead context.
 */
template <class Driver>
CUresult check_alive(const Driver &driver, CUcontext context, uint64_t id) noexcept {
    unsigned long long now = 0;
    const CUresult result = driver.cuCtxGetId(context, &now);
    return result == CUDA_SUCCESS && now != id ? CUDA_ERROR_CONTEXT_IS_DESTROYED : result;
}

/*
 * Whether `stream`, which exists, belongs to another context. If the driver cannot tell, the stream
 * is not foreign; after any other error nothing is known. `driver` has get_stream_context
 * (emm_cuStreamGetCtx_12050) and get_stream_context_12000; each may be NULL. The owner of a green
 * context's streams is its primary context; before CUDA 12.5 the driver does not name it.
 */
template <class Driver>
CUresult is_foreign(const Driver &driver, CUcontext context, CUstream stream,
                    bool &ret_foreign) noexcept {
    CUcontext owner = context;
    CUgreenCtx_st *green = nullptr;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (driver.get_stream_context) {
        result = driver.get_stream_context(stream, &owner, &green);
    } else if (driver.get_stream_context_12000) {
        result = driver.get_stream_context_12000(stream, &owner);
    }
    ret_foreign = result == CUDA_SUCCESS && owner != context;
    return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result;
}

/*
 * Makes a context current for a scope (cuCtxGetCurrent, cuCtxPushCurrent, cuCtxPopCurrent). If
 * `so_far` is a failure, does nothing, and the failure is the result. With `ask`, a context that is
 * current already is not pushed: asking costs less than pushing.
 */
template <class Driver> class PushedContext {
public:
    PushedContext(const Driver &driver, CUcontext context, CUresult so_far = CUDA_SUCCESS,
                  bool ask = false)
        : driver_(driver), result_(so_far), pushed_(false) {
        CUcontext current = nullptr;
        if (result_ == CUDA_SUCCESS &&
            (!ask || driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context)) {
            result_ = driver.cuCtxPushCurrent(context);
            pushed_ = result_ == CUDA_SUCCESS;
        }
    }
    ~PushedContext() {
        CUcontext popped = nullptr;
        if (pushed_ && driver_.cuCtxPopCurrent(&popped) != CUDA_SUCCESS) {
            driver_.cuCtxPopCurrent(&popped); // or later calls would be made in this context
        }
    }
    PushedContext(const PushedContext &) = delete;
    PushedContext &operator=(const PushedContext &) = delete;
    CUresult result() const { return result_; }

private:
    const Driver &driver_;
    CUresult result_;
    bool pushed_;
};

/* Likewise for a context that must be alive (cuCtxGetId), and may be current. */
template <class Driver> class Current : public PushedContext<Driver> {
public:
    Current(const Driver &driver, CUcontext context, uint64_t id)
        : PushedContext<Driver>(driver, context, check_alive(driver, context, id), true) {}
};

/*
 * Sets the calling thread's capture mode to `mode`, which gets the previous mode. A call that fails
 * is made once more: otherwise the thread would keep an unwanted mode.
 */
template <class Driver>
CUresult exchange_capture_mode(const Driver &driver, CUstreamCaptureMode &mode) noexcept {
    const CUresult result = driver.cuThreadExchangeStreamCaptureMode(&mode);
    return result == CUDA_SUCCESS ? result : driver.cuThreadExchangeStreamCaptureMode(&mode);
}

/*
 * While this object lives, driver calls of this thread invalidate no capture of any stream, if
 * result() is CUDA_SUCCESS. Without this object, cuMemAlloc, cuMemFree and many others do, while a
 * stream captures in global mode (cuThreadExchangeStreamCaptureMode). Without success the mode is
 * unchanged.
 */
template <class Driver> class RelaxedCapture {
public:
    explicit RelaxedCapture(const Driver &driver)
        : driver_(driver), mode_(CU_STREAM_CAPTURE_MODE_RELAXED),
          result_(exchange_capture_mode(driver, mode_)) {}
    ~RelaxedCapture() {
        if (result_ == CUDA_SUCCESS) {
            exchange_capture_mode(driver_, mode_);
        }
    }
    RelaxedCapture(const RelaxedCapture &) = delete;
    RelaxedCapture &operator=(const RelaxedCapture &) = delete;
    CUresult result() const { return result_; }

private:
    const Driver &driver_;
    CUstreamCaptureMode mode_;
    const CUresult result_;
};

/*
 * Waits for all work of the current context. cuMemFree and cuMemFreeHost do so, and in a thread
 * whose capture mode is relaxed they leave all captures valid, which cuCtxSynchronize does not. The
 * memory to free is device memory, or pinned memory if the device is full.
 */
template <class Driver> CUresult wait_beside_captures(const Driver &driver) noexcept {
    CUdeviceptr device = 0;
    if (driver.cuMemAlloc(&device, 1) == CUDA_SUCCESS) {
        const CUresult result = driver.cuMemFree(device);
        return result == CUDA_SUCCESS ? result : driver.cuMemFree(device);
    }
    if (!driver.cuMemHostAlloc || !driver.cuMemFreeHost) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    void *host = nullptr;
    CUresult result = driver.cuMemHostAlloc(&host, 1, 0);
    if (result == CUDA_SUCCESS) {
        result = driver.cuMemFreeHost(host);
        result = result == CUDA_SUCCESS ? result : driver.cuMemFreeHost(host);
    }
    return result;
}

} // namespace cuda
} // namespace emm
#endif

#endif
