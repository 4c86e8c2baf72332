#include "driver/driver.h"

#include "observe/error.h"

namespace emm::driver {
namespace {

// Waiting for a stream that captures would fail, and invalidate the capture.
emm_status wait(const Driver &driver, CUstream stream, CUstreamCaptureStatus capture) {
    if (capture != CU_STREAM_CAPTURE_STATUS_NONE) {
        return observe::fail(EMM_E_CAPTURING, 0,
                             "the stream where the data is ready captures, and cannot be waited "
                             "for; name the stream where the data will be used");
    }
    return EMM_DRIVER_CALL(driver, cuStreamSynchronize, stream);
}

// An event of this context cannot be recorded on a stream of another one.
bool refuses_stream(CUresult result) {
    return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT;
}

} // namespace

CUresult wait_for_work(const Driver &driver) noexcept {
    const RelaxedCapture relaxed(driver);
    void *fence = nullptr;
    const CUresult result = driver.cuMemHostAlloc(&fence, 1, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const CUresult waited = driver.cuMemFreeHost(fence);
    return waited == CUDA_SUCCESS ? waited : driver.cuMemFreeHost(fence);
}

emm_status order(const Driver &driver, emm_stream before, emm_stream after) {
    if (before == after) {
        return EMM_OK;
    }
    // The legacy stream answers with an error, harmlessly, while a stream that it waits for
    // captures.
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    EMM_TRY(EMM_DRIVER_CALL(driver, cuStreamIsCapturing, before, &capture));
    if (after == EMM_STREAM_UNORDERED) {
        return wait(driver, before, capture);
    }
    CUevent event = nullptr;
    EMM_TRY(EMM_DRIVER_CALL(driver, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING));
    CUresult result = driver.cuEventRecord(event, before);
    const bool recorded = result == CUDA_SUCCESS;
    if (recorded) {
        result = driver.cuStreamWaitEvent(after, event, 0);
    }
    driver.cuEventDestroy(event);
    if (!recorded && refuses_stream(result)) {
        return wait(driver, before, capture);
    }
    return check(result, recorded ? "cuStreamWaitEvent" : "cuEventRecord");
}

} // namespace emm::driver
