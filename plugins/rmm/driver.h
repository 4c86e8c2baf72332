#pragma once

#include "common/driver.h"

namespace emm::over_rmm {

// The entries for telling streams and memory apart, and for trimming a pool of the driver, on top
// of the common ones.
struct Driver : common::StreamDriver {
    explicit Driver(const emm_host &host) : common::StreamDriver(host) { expect_complete(); }

    EMM_CUDA_REQUIRED(cuMemPoolDestroy);
    EMM_CUDA_REQUIRED(cuMemPoolGetAttribute);
    EMM_CUDA_REQUIRED(cuMemPoolSetAttribute);
    EMM_CUDA_REQUIRED(cuMemPoolTrimTo);
    EMM_CUDA_REQUIRED(cuStreamGetId);
};

} // namespace emm::over_rmm
