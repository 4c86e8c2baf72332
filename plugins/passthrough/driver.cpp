#include "driver.h"

namespace emm::passthrough {
namespace {

emm_status status_of(CUresult result) noexcept {
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return EMM_E_OUT_OF_MEMORY;
    case CUDA_ERROR_INVALID_VALUE:
        return EMM_E_INVALID_VALUE;
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
    // After these the context answers every call with an error.
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
        return EMM_E_DEVICE_LOST;
    default:
        return EMM_E_DRIVER;
    }
}

} // namespace

Driver::Driver(const emm_host &host) {
    require_entry(host, "cuGetErrorName", cuGetErrorName);
    require_entry(host, "cuCtxGetId", cuCtxGetId);
    require_entry(host, "cuMemAlloc", cuMemAlloc);
    require_entry(host, "cuMemFree", cuMemFree);
    require_entry(host, "cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode);
    require_entry(host, "cuUserObjectCreate", cuUserObjectCreate);
    require_entry(host, "cuUserObjectRelease", cuUserObjectRelease);
    require_entry(host, "cuGraphRetainUserObject", cuGraphRetainUserObject);
    require_entry(host, "cuStreamGetCaptureInfo", get_capture_info);
    require_entry(host, "cuStreamGetCtx", get_stream_context);
    find_entry(host, "cuStreamGetCtx", get_stream_context_12050, 12050);
}

// The streams of a green context are its primary context's. Before CUDA 12.5 they are not told.
void Driver::expect_own(CUcontext context, emm_stream stream) const {
    const bool built_in = reinterpret_cast<uintptr_t>(stream) <= 2; // legacy and per-thread
    if (built_in || stream == EMM_STREAM_UNORDERED) {
        return;
    }
    CUcontext owner = nullptr;
    CUgreenCtx_st *green = nullptr;
    const CUresult result = get_stream_context_12050
                                ? get_stream_context_12050(stream, &owner, &green)
                                : get_stream_context(stream, &owner);
    if (result == CUDA_SUCCESS && owner != context) {
        throw PluginError(EMM_E_INVALID_VALUE, 0,
                          "the stream belongs to another context, whose work no wait here covers; "
                          "nothing was freed");
    }
}

bool Driver::is_alive(CUcontext context, uint64_t id) const noexcept {
    unsigned long long found = 0;
    const CUresult result = cuCtxGetId(context, &found);
    return result == CUDA_SUCCESS ? found == id : !is_late(result);
}

void Driver::fail(CUresult result, const char *what) const {
    const char *name = nullptr;
    if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) {
        name = "CUDA error";
    }
    char text[256];
    snprintf(text, sizeof text, "%s failed: %s (%d)", what, name, static_cast<int>(result));
    throw PluginError(status_of(result), static_cast<int32_t>(result), text);
}

} // namespace emm::passthrough
