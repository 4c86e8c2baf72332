#include "common/streams.h"

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

void ContextWait::notice(uint32_t notice) {
    if (notice == EMM_STREAM_CAPTURE_BEGINS) {
        const std::lock_guard lock(announcing_);
        ++captures_;
    } else if (notice == EMM_STREAM_CAPTURE_ENDS) {
        --captures_;
    }
}

PrivateStream::PrivateStream(const StreamDriver &driver, CUcontext context, uint64_t context_id)
    : driver_(driver), context_(context), context_id_(context_id) {
    const RelaxedCapture relaxed(driver);
    driver.check(driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

PrivateStream::~PrivateStream() {
    const RelaxedCapture relaxed(driver_);
    if (driver_.is_alive(context_, context_id_)) {
        driver_.cuStreamDestroy(stream_);
    }
}

} // namespace emm::common
