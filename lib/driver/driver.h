#pragma once

#include <emm/cuda.h>
#include <emm/emm.h>

#include <string>
#include <string_view>

namespace emm::driver {

// The entries that the host itself calls. They are counted if the driver is metered.
struct Driver : cuda::Entries {
    explicit Driver(cuda::Find find) : Entries(find) {}

    EMM_CUDA_REQUIRED(cuInit);
    EMM_CUDA_REQUIRED(cuDriverGetVersion);
    EMM_CUDA_REQUIRED(cuGetErrorName);
    EMM_CUDA_REQUIRED(cuGetErrorString);
    EMM_CUDA_REQUIRED(cuDeviceGet);
    EMM_CUDA_REQUIRED(cuDeviceGetCount);
    EMM_CUDA_REQUIRED(cuDeviceGetUuid);
    EMM_CUDA_REQUIRED(cuDeviceTotalMem);
    EMM_CUDA_REQUIRED(cuDevicePrimaryCtxRetain);
    EMM_CUDA_REQUIRED(cuDevicePrimaryCtxRelease);
    EMM_CUDA_REQUIRED(cuDevicePrimaryCtxGetState);
    EMM_CUDA_REQUIRED(cuCtxGetCurrent);
    EMM_CUDA_REQUIRED(cuCtxPushCurrent);
    EMM_CUDA_REQUIRED(cuCtxPopCurrent);
    EMM_CUDA_REQUIRED(cuCtxGetDevice);
    EMM_CUDA_REQUIRED(cuCtxGetId);
    EMM_CUDA_REQUIRED(cuMemGetInfo);
    EMM_CUDA_REQUIRED(cuMemHostAlloc);
    EMM_CUDA_REQUIRED(cuMemFreeHost);
    EMM_CUDA_REQUIRED(cuMemHostGetDevicePointer);
    EMM_CUDA_REQUIRED(cuMemHostRegister);
    EMM_CUDA_REQUIRED(cuMemHostUnregister);
    EMM_CUDA_REQUIRED(cuMemAllocManaged);
    EMM_CUDA_REQUIRED(cuMemFree);
    EMM_CUDA_REQUIRED(cuThreadExchangeStreamCaptureMode);
    EMM_CUDA_REQUIRED(cuPointerGetAttribute);
    EMM_CUDA_REQUIRED(cuStreamSynchronize);
    EMM_CUDA_REQUIRED(cuStreamIsCapturing);
    EMM_CUDA_REQUIRED(cuStreamWaitEvent);
    EMM_CUDA_REQUIRED(cuEventCreate);
    EMM_CUDA_REQUIRED(cuEventRecord);
    EMM_CUDA_REQUIRED(cuEventDestroy);
    EMM_CUDA_REQUIRED(cuDeviceGetAttribute);
    EMM_CUDA_REQUIRED(cuMemGetAddressRange);
    EMM_CUDA_REQUIRED(cuIpcGetMemHandle);
    EMM_CUDA_REQUIRED(cuIpcOpenMemHandle);
    EMM_CUDA_REQUIRED(cuIpcCloseMemHandle);
    EMM_CUDA_REQUIRED(cuDeviceCanAccessPeer);
    EMM_CUDA_REQUIRED(cuMemcpyPeer);

    // Memory of cuMemCreate, and memory pools, of other processes.
    EMM_CUDA_REQUIRED(cuCtxSynchronize);
    EMM_CUDA_REQUIRED(cuMemAddressReserve);
    EMM_CUDA_REQUIRED(cuMemAddressFree);
    EMM_CUDA_REQUIRED(cuMemMap);
    EMM_CUDA_REQUIRED(cuMemUnmap);
    EMM_CUDA_REQUIRED(cuMemSetAccess);
    EMM_CUDA_REQUIRED(cuMemRelease);
    EMM_CUDA_REQUIRED(cuMemExportToShareableHandle);
    EMM_CUDA_REQUIRED(cuMemImportFromShareableHandle);
    EMM_CUDA_REQUIRED(cuMemPoolExportToShareableHandle);
    EMM_CUDA_REQUIRED(cuMemPoolImportFromShareableHandle);
    EMM_CUDA_REQUIRED(cuMemPoolImportPointer);
    EMM_CUDA_REQUIRED(cuMemPoolSetAccess);
    EMM_CUDA_REQUIRED(cuMemPoolDestroy);

    // NULL before CUDA 12.5
    emm_cuStreamGetCtx_12050 get_stream_context =
        optional<emm_cuStreamGetCtx_12050>("cuStreamGetCtx", 12050);
    emm_cuStreamGetCtx_12000 get_stream_context_12000 =
        optional<emm_cuStreamGetCtx_12000>("cuStreamGetCtx", 12000);

    std::string path;
    int cuda_version = 0;
    bool simulated = false;
};

// Loads the driver on the first call: the one that the process has already, else the one that
// EMM_DRIVER names, else libcuda.so.1. A failure is described, and the next call tries again.
emm_status load(const Driver *&ret_driver);

// The same driver, initialised (cuInit).
emm_status initialize(const Driver *&ret_driver);

// Sets the bounds from a text like EMM_LIMIT's. A failure is described.
emm_status change_limits(std::string_view text);

// A sentence about the first device that holds more than its bound, or "".
std::string above_limit_text();

// The driver if it has been loaded, else NULL.
const Driver *loaded() noexcept;

// Both return the entry point of that CUDA version, or NULL if the driver has none. emm and plugins
// use metered_entry(): the account counts its calls, and they ask the driver about no EndedContext.
emm_function entry(const char *name, int32_t cuda_version) noexcept;
emm_function metered_entry(const char *name, int32_t cuda_version) noexcept;

// A context that is known to be gone. While one of these lives, this thread's cuCtxGetId of that
// handle, also the plugin's, is answered without the driver, which may crash if the handle's memory
// has been reused. NULL: no context.
class EndedContext {
public:
    explicit EndedContext(CUcontext context) noexcept;
    ~EndedContext();
    EndedContext(const EndedContext &) = delete;
    EndedContext &operator=(const EndedContext &) = delete;

private:
    const CUcontext before_;
};

// "CUDA_ERROR_OUT_OF_MEMORY (2)"
const char *name_of(CUresult result) noexcept;

// A driver's result as another process or a text reports it. CUDA_ERROR_UNKNOWN if the number
// cannot be a CUresult.
CUresult result_of(int32_t number) noexcept;

// The status for a failed call, described as "`call` failed: NAME (n), text".
emm_status fail(CUresult result, const char *call) noexcept;

// EMM_OK for CUDA_SUCCESS, else the same.
inline emm_status check(CUresult result, const char *call) noexcept {
    return result == CUDA_SUCCESS ? EMM_OK : fail(result, call);
}

using cuda::check_alive;
using cuda::is_foreign;
using cuda::is_late;
using RelaxedCapture = cuda::RelaxedCapture<Driver>;

// The same for a call of an entry of the driver.
#define EMM_DRIVER_CALL(entries, name, ...) ::emm::driver::check((entries).name(__VA_ARGS__), #name)

// Makes a live context current for a scope. It is pushed even if it is current already, because a
// plugin's code in the scope may leave another context current.
class Current : public cuda::PushedContext<Driver> {
public:
    Current(const Driver &driver, CUcontext context, uint64_t id)
        : PushedContext(driver, context, check_alive(driver, context, id)) {}
    emm_status status() const { return check(result(), "making the context current"); }
};

// A device's identity, the same in every process.
struct DeviceIdentity {
    uint8_t uuid[16] = {};
    uint32_t pci[3] = {}; // domain, bus, device
};

// The handle of a device; EMM_E_INVALID_VALUE: no device has that ordinal. A failure is described.
emm_status find_device(const Driver &driver, int32_t ordinal, CUdevice *ret_device);

// A failure is described.
emm_status identify_device(const Driver &driver, CUdevice device, DeviceIdentity *ret_identity);

// CUDA's description of an address. The context is current.
struct Pointer {
    emm_deviceptr device = 0; // as this context uses it
    void *host = nullptr;     // NULL: the host cannot use it
    bool on_host = false;     // pinned host memory
    bool managed = false;
};

// CUDA_ERROR_INVALID_VALUE if CUDA does not know the address.
CUresult look_up(const Driver &driver, emm_deviceptr address, Pointer &ret_pointer) noexcept;

// Waits for all work of the current context. cuCtxSynchronize would invalidate captures, so this
// frees pinned memory in relaxed mode, which waits as well.
CUresult wait_for_work(const Driver &driver) noexcept;

// Work put on `after` from now on runs behind the work that `before` holds now. If `after` is
// EMM_STREAM_UNORDERED, the caller waits instead. The context is current. A failure is described.
emm_status order(const Driver &driver, emm_stream before, emm_stream after);

} // namespace emm::driver
