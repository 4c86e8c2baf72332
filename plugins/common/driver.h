#pragma once

#include "passthrough/driver.h"

namespace emm::common {

// What private streams, and waiting for a context, need on top of passthrough's entries.
struct Driver : passthrough::Driver {
    explicit Driver(const emm_host &host) : passthrough::Driver(host) { expect_complete(); }

    EMM_CUDA_REQUIRED(cuStreamCreate);
    EMM_CUDA_REQUIRED(cuStreamDestroy);
    EMM_CUDA_REQUIRED(cuStreamSynchronize);
    EMM_CUDA_REQUIRED(cuStreamWaitEvent);
    EMM_CUDA_REQUIRED(cuEventCreate);
    EMM_CUDA_REQUIRED(cuEventDestroy);
    EMM_CUDA_REQUIRED(cuCtxSynchronize);
    emm_cuCtxRecordEvent_12050 record_context_event = // NULL before CUDA 12.5
        optional<emm_cuCtxRecordEvent_12050>("cuCtxRecordEvent", 12050);
};

} // namespace emm::common
