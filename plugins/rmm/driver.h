#pragma once

#include "passthrough/driver.h"

namespace emm::over_rmm {

// What ordering needs on top of passthrough's entries.
struct Driver : passthrough::Driver {
    explicit Driver(const emm_host &host) : passthrough::Driver(host) { expect_complete(); }

    EMM_CUDA_REQUIRED(cuMemGetInfo);
    EMM_CUDA_REQUIRED(cuStreamCreate);
    EMM_CUDA_REQUIRED(cuStreamDestroy);
    EMM_CUDA_REQUIRED(cuStreamGetId);
    EMM_CUDA_REQUIRED(cuStreamSynchronize);
    EMM_CUDA_REQUIRED(cuStreamWaitEvent);
    EMM_CUDA_REQUIRED(cuEventCreate);
    EMM_CUDA_REQUIRED(cuEventDestroy);
    EMM_CUDA_REQUIRED(cuCtxSynchronize);
    emm_cuCtxRecordEvent_12050 record_context_event = // NULL before CUDA 12.5
        optional<emm_cuCtxRecordEvent_12050>("cuCtxRecordEvent", 12050);
};

// A stream that no work of the legacy stream waits for.
class PrivateStream {
public:
    PrivateStream(const Driver &driver, CUcontext context, uint64_t context_id)
        : driver_(driver), context_(context), context_id_(context_id) {
        const passthrough::RelaxedCapture relaxed(driver);
        driver.check(driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
    // A stream dies with its context.
    ~PrivateStream() {
        const passthrough::RelaxedCapture relaxed(driver_);
        if (driver_.is_alive(context_, context_id_)) {
            driver_.cuStreamDestroy(stream_);
        }
    }
    PrivateStream(const PrivateStream &) = delete;
    PrivateStream &operator=(const PrivateStream &) = delete;

    operator CUstream() const { return stream_; }

private:
    const Driver &driver_;
    const CUcontext context_;
    const uint64_t context_id_;
    CUstream stream_ = nullptr;
};

} // namespace emm::over_rmm
