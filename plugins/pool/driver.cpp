#include "driver.h"

#include <cstdio>

namespace emm::pool {
namespace {

constexpr int signatures = 12000; // CUDA 12.0 is the oldest that emm runs on

template <class Function>
void ask(const emm_host &host, const char *name, int version, Entry<Function> &entry) {
    entry.set(reinterpret_cast<Function>(host.driver(name, version)), name);
}

template <class Function>
void require(const emm_host &host, const char *name, Entry<Function> &entry) {
    ask(host, name, signatures, entry);
    if (!entry) {
        char text[128];
        snprintf(text, sizeof text, "pool: the driver has no %s, which it needs", name);
        throw PluginError(EMM_E_NOT_SUPPORTED, 0, text);
    }
}

} // namespace

Driver::Driver(const emm_host &host) {
#define EMM_POOL_ASK(name) require(host, #name, name);
    EMM_POOL_REQUIRED(EMM_POOL_ASK)
#undef EMM_POOL_ASK
#define EMM_POOL_ASK(name) ask(host, #name, signatures, name);
    EMM_POOL_OPTIONAL(EMM_POOL_ASK)
#undef EMM_POOL_ASK
    ask(host, "cuCtxRecordEvent", 12050, record_context_event);
    ask(host, "cuStreamGetCaptureInfo", signatures, capture_info);
    ask(host, "cuStreamGetCtx", signatures, stream_context);
    ask(host, "cuStreamGetCtx", 12050, stream_context_12050);
}

bool Driver::is_alive(CUcontext context, uint64_t id) const {
    unsigned long long found = 0;
    const CUresult result = cuCtxGetId(context, &found);
    return result == CUDA_SUCCESS ? found == id : !is_gone(result);
}

// The streams of a green context are its primary context's. Before CUDA 12.5 they are not told.
bool Driver::is_foreign(CUcontext context, CUstream stream) const {
    CUcontext owner = nullptr;
    struct CUgreenCtx_st *green = nullptr;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (stream_context_12050) {
        result = stream_context_12050(stream, &owner, &green);
    } else if (stream_context) {
        result = stream_context(stream, &owner);
    }
    return result == CUDA_SUCCESS && owner != context;
}

bool is_sticky(CUresult result) {
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

bool is_gone(CUresult result) {
    return result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           result == CUDA_ERROR_INVALID_CONTEXT;
}

} // namespace emm::pool
