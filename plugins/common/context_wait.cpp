#include "common/context_wait.h"

namespace emm::common {

CUresult ContextWait::unless_capturing(CUstream waiting) {
    const std::lock_guard lock(announcing_);
    return is_capturing() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : for_everything(waiting);
}

CUresult ContextWait::for_everything(CUstream waiting) const {
    if (!driver_.record_context_event) {
        return driver_.cuCtxSynchronize();
    }
    CUevent event = nullptr;
    CUresult result = driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = driver_.record_context_event(context_, event);
    if (result == CUDA_SUCCESS) {
        result = driver_.cuStreamWaitEvent(waiting, event, 0);
    }
    driver_.cuEventDestroy(event);
    return result;
}

void ContextWait::capture_begins() {
    const std::lock_guard lock(announcing_);
    ++captures_;
}

void ContextWait::capture_ends() {
    --captures_;
}

} // namespace emm::common
