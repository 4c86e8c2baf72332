#include "result.h"

namespace emm::run {

CUresult result_of(emm_status status, int driver) {
    if (status >= 0) {
        return CUDA_SUCCESS;
    }
    switch (status) {
    case EMM_E_INVALID_VALUE:
    case EMM_E_NOT_OWNED:
    case EMM_E_ALREADY_FREED:
        return driver ? CUresult(driver) : CUDA_ERROR_INVALID_VALUE;
    case EMM_E_OUT_OF_MEMORY:
    case EMM_E_OUT_OF_HOST_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case EMM_E_NOT_SUPPORTED:
        return CUDA_ERROR_NOT_SUPPORTED;
    case EMM_E_FORKED:
    case EMM_E_NO_DRIVER:
        return CUDA_ERROR_NOT_INITIALIZED;
    case EMM_E_NO_CONTEXT:
        return CUDA_ERROR_INVALID_CONTEXT;
    case EMM_E_RETIRED:
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    case EMM_E_SHUT_DOWN:
        return CUDA_ERROR_DEINITIALIZED;
    case EMM_E_CAPTURING:
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    case EMM_E_PLUGIN_SPEC:
    case EMM_E_PLUGIN_NOT_FOUND:
    case EMM_E_PLUGIN_UNTRUSTED:
    case EMM_E_PLUGIN_UNLOADABLE:
    case EMM_E_PLUGIN_VERSION:
    case EMM_E_PLUGIN_INVALID:
        return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED; // as cuInit answers
    default:
        return driver ? CUresult(driver) : CUDA_ERROR_UNKNOWN;
    }
}

CUresult result_of(emm_status status) {
    return result_of(status, status < 0 ? emm_last_error()->driver_result : 0);
}

bool leaves_to_driver(emm_status status) {
    return status == EMM_E_RETIRED || status == EMM_E_SHUT_DOWN || status == EMM_E_FORKED;
}

} // namespace emm::run
