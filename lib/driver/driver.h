#pragma once

#include <emm/emm.h>

#include <cuda.h>
#include <string>

namespace emm::driver {

// The entries that the host itself calls, with their CUDA 12.0 signatures unless said otherwise.
#define EMM_DRIVER_ENTRIES(entry)                                                                  \
    entry(cuInit) entry(cuDriverGetVersion) entry(cuGetErrorName) entry(cuGetErrorString)          \
        entry(cuDeviceGet) entry(cuDeviceGetCount) entry(cuDeviceGetUuid)                          \
            entry(cuDevicePrimaryCtxRetain) entry(cuDevicePrimaryCtxRelease)                       \
                entry(cuDevicePrimaryCtxGetState) entry(cuCtxGetCurrent) entry(cuCtxPushCurrent)   \
                    entry(cuCtxPopCurrent) entry(cuCtxGetDevice) entry(cuCtxGetId)                 \
                        entry(cuMemGetInfo) entry(cuMemHostAlloc) entry(cuMemFreeHost)             \
                            entry(cuMemHostGetDevicePointer) entry(cuMemHostRegister)              \
                                entry(cuMemHostUnregister) entry(cuMemAllocManaged)                \
                                    entry(cuMemFree) entry(cuThreadExchangeStreamCaptureMode)      \
                                        entry(cuPointerGetAttribute) entry(cuStreamSynchronize)    \
                                            entry(cuStreamIsCapturing) entry(cuStreamWaitEvent)    \
                                                entry(cuEventCreate) entry(cuEventRecord) entry(   \
                                                    cuEventDestroy) entry(cuDeviceGetAttribute)    \
                                                    entry(cuMemGetAddressRange)                    \
                                                        entry(cuIpcGetMemHandle)                   \
                                                            entry(cuIpcOpenMemHandle)              \
                                                                entry(cuIpcCloseMemHandle)         \
                                                                    entry(cuDeviceCanAccessPeer)   \
                                                                        entry(cuMemcpyPeer)

// Those for memory of cuMemCreate and memory pools that other processes have.
#define EMM_DRIVER_MAPPING_ENTRIES(entry)                                                          \
    entry(cuCtxSynchronize) entry(cuMemAddressReserve) entry(cuMemAddressFree) entry(cuMemMap)     \
        entry(cuMemUnmap) entry(cuMemSetAccess) entry(cuMemRelease)                                \
            entry(cuMemExportToShareableHandle) entry(cuMemImportFromShareableHandle)              \
                entry(cuMemPoolExportToShareableHandle) entry(cuMemPoolImportFromShareableHandle)  \
                    entry(cuMemPoolImportPointer) entry(cuMemPoolSetAccess)                        \
                        entry(cuMemPoolDestroy)

using StreamGetCtx9020 = CUresult (*)(CUstream, CUcontext *);
using StreamGetCtx12050 = CUresult (*)(CUstream, CUcontext *, struct CUgreenCtx_st **);

struct Driver {
#define EMM_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
    EMM_DRIVER_ENTRIES(EMM_DRIVER_MEMBER)
    EMM_DRIVER_MAPPING_ENTRIES(EMM_DRIVER_MEMBER)
#undef EMM_DRIVER_MEMBER
    StreamGetCtx12050 stream_get_ctx = nullptr; // NULL before CUDA 12.5
    StreamGetCtx9020 stream_get_ctx_9020 = nullptr;
    std::string path;
    int cuda_version = 0;
    bool simulated = false;
};

// Loads the driver on the first call: one that is in the process already, else the one that
// EMM_DRIVER names, else libcuda.so.1. A failure is described, and tried again the next time.
emm_status load(const Driver *&ret_driver);

// The same driver, initialised (cuInit).
emm_status initialize(const Driver *&ret_driver);

// The driver if it has been loaded, else NULL.
const Driver *loaded() noexcept;

// An entry point by CUDA version, NULL if there is none or no driver; `metered` ones are counted.
emm_function entry(const char *name, int32_t cuda_version) noexcept;
emm_function metered_entry(const char *name, int32_t cuda_version) noexcept;

// "CUDA_ERROR_OUT_OF_MEMORY (2)"
std::string name_of(CUresult result);

// What another process, or text, says that a driver answered: CUDA_ERROR_UNKNOWN unless it is a
// number that a CUresult can have.
CUresult result_of(int32_t number) noexcept;

// The status for a failed call, described as "`call` failed: NAME (n), text".
emm_status fail(CUresult result, const char *call) noexcept;
emm_status status_of(CUresult result) noexcept;

// Frees may come after the driver has gone or the context has died; that is nothing to report.
inline bool is_late(CUresult result) noexcept {
    return result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// Whether the handle still means the context that had this id: CUDA_ERROR_CONTEXT_IS_DESTROYED if
// not. The driver crashes on other calls with the handle of a context that has died.
CUresult check_alive(const Driver &driver, CUcontext context, uint64_t id) noexcept;

// Whether `stream`, which exists, is known to belong to another context.
bool is_foreign(const Driver &driver, CUcontext context, CUstream stream) noexcept;

// Makes a context that is alive current for a scope.
class Current {
public:
    Current(const Driver &driver, CUcontext context, uint64_t id)
        : driver_(driver), result_(check_alive(driver, context, id)) {
        if (result_ == CUDA_SUCCESS) {
            result_ = driver.cuCtxPushCurrent(context);
        }
    }
    ~Current() {
        CUcontext popped;
        if (result_ == CUDA_SUCCESS) {
            driver_.cuCtxPopCurrent(&popped);
        }
    }
    Current(const Current &) = delete;
    Current &operator=(const Current &) = delete;
    CUresult result() const { return result_; }

private:
    const Driver &driver_;
    CUresult result_;
};

// While it lives, a driver call of this thread invalidates no capture of any stream.
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

} // namespace emm::driver
