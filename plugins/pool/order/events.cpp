#include "events.h"

#include "cuda/relaxed.h"

namespace emm::pool {

// In another context the wait would be for that context's work, and might end its captures.
CUresult await_work_of(const Driver &driver, CUcontext context, uint64_t id) {
    const Current current(driver, context, id);
    const Relaxed relaxed(driver);
    const CUresult result = current.result() == CUDA_SUCCESS ? relaxed.result() : current.result();
    return result == CUDA_SUCCESS ? cuda::wait_beside_captures(driver) : result;
}

CUresult Events::synchronize() const {
    const Current current = context_.make_current();
    const Relaxed relaxed(driver_);
    return current.result() == CUDA_SUCCESS ? driver_.cuCtxSynchronize() : current.result();
}

CUresult Events::record(CUevent &event, CUstream stream) const {
    const Current current = context_.make_current();
    CUresult result = current.result();
    if (result == CUDA_SUCCESS && !event) {
        result = driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    }
    if (result == CUDA_SUCCESS && stream == nullptr) {
        // If an event here would invalidate the capture of a blocking stream, this call says so,
        // and does no harm.
        bool capturing = false;
        result = is_capturing(stream, capturing);
    }
    return result == CUDA_SUCCESS ? driver_.cuEventRecord(event, stream) : result;
}

CUresult Events::record_on_context(CUevent &event) const {
    const Current current = context_.make_current();
    CUresult result = current.result();
    if (result == CUDA_SUCCESS && !driver_.record_context_event) {
        return driver_.cuCtxSynchronize();
    }
    if (result == CUDA_SUCCESS && !event) {
        result = driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    }
    return result == CUDA_SUCCESS ? driver_.record_context_event(context_.handle, event) : result;
}

// Even a query invalidates a capture in global mode.
CUresult Events::query(CUevent event) const {
    const Relaxed relaxed(driver_);
    return relaxed.result() == CUDA_SUCCESS ? driver_.cuEventQuery(event) : relaxed.result();
}

CUresult Events::wait(CUevent event) const {
    const Relaxed relaxed(driver_);
    return relaxed.result() == CUDA_SUCCESS ? driver_.cuEventSynchronize(event) : relaxed.result();
}

CUresult Events::query_stream(CUstream stream) const {
    const Current current = context_.make_current();
    const Relaxed relaxed(driver_);
    const CUresult result = current.result() == CUDA_SUCCESS ? relaxed.result() : current.result();
    return result == CUDA_SUCCESS ? driver_.cuStreamQuery(stream) : result;
}

CUresult Events::wait_on_stream(CUstream stream, CUevent event) const {
    bool capturing = false;
    const CUresult result = stream ? CUDA_SUCCESS : is_capturing(stream, capturing);
    return result == CUDA_SUCCESS ? driver_.cuStreamWaitEvent(stream, event, 0) : result;
}

CUresult Events::is_capturing(CUstream stream, bool &ret_capturing) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = driver_.cuStreamIsCapturing(stream, &status);
    ret_capturing = status != CU_STREAM_CAPTURE_STATUS_NONE;
    return result;
}

bool Events::is_same_and_not_capturing(CUstream stream, uint64_t id) const {
    bool capturing = false;
    unsigned long long found = 0;
    return is_capturing(stream, capturing) == CUDA_SUCCESS && !capturing &&
           driver_.cuStreamGetId(stream, &found) == CUDA_SUCCESS && found == id;
}

} // namespace emm::pool
