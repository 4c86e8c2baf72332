#include "driver/stream.h"

#include "observe/error.h"

namespace emm::driver {
namespace {

emm_status wait(const Driver &driver, CUstream stream) {
    // Waiting for a stream that captures would fail, and invalidate the capture.
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    if (driver.cuStreamIsCapturing(stream, &capture) == CUDA_SUCCESS &&
        capture != CU_STREAM_CAPTURE_STATUS_NONE) {
        return observe::fail(EMM_E_CAPTURING, 0,
                             "the stream where the data is ready captures, and cannot be waited "
                             "for; name the stream where the data will be used");
    }
    const CUresult result = driver.cuStreamSynchronize(stream);
    return result == CUDA_SUCCESS ? EMM_OK : fail(result, "cuStreamSynchronize");
}

// An event of this context cannot be recorded on a stream of another one.
bool is_foreign(CUresult result) {
    return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT;
}

} // namespace

emm_status order(const Driver &driver, emm_stream before, emm_stream after) {
    if (before == after) {
        return EMM_OK;
    }
    if (after == EMM_STREAM_UNORDERED) {
        return wait(driver, before);
    }
    CUevent event = nullptr;
    CUresult result = driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        return fail(result, "cuEventCreate");
    }
    result = driver.cuEventRecord(event, before);
    const bool recorded = result == CUDA_SUCCESS;
    if (recorded) {
        result = driver.cuStreamWaitEvent(after, event, 0);
    }
    driver.cuEventDestroy(event);
    if (!recorded && is_foreign(result)) {
        return wait(driver, before);
    }
    return result == CUDA_SUCCESS ? EMM_OK
                                  : fail(result, recorded ? "cuStreamWaitEvent" : "cuEventRecord");
}

} // namespace emm::driver
