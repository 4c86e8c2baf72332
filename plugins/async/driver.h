#pragma once

#include "common/driver.h"

namespace emm::async {

// The entries of the driver's own pools, on top of the common ones.
struct Driver : common::StreamDriver {
    explicit Driver(const emm_host &host) : common::StreamDriver(host) { expect_complete(); }

    EMM_CUDA_REQUIRED(cuDriverGetVersion);
    EMM_CUDA_REQUIRED(cuMemPoolCreate);
    EMM_CUDA_REQUIRED(cuMemPoolDestroy);
    EMM_CUDA_REQUIRED(cuMemPoolSetAttribute);
    EMM_CUDA_REQUIRED(cuMemPoolGetAttribute);
    EMM_CUDA_REQUIRED(cuMemPoolSetAccess);
    EMM_CUDA_REQUIRED(cuMemPoolTrimTo);
    EMM_CUDA_REQUIRED(cuMemAllocFromPoolAsync);
    EMM_CUDA_REQUIRED(cuMemPoolExportToShareableHandle);
    EMM_CUDA_REQUIRED(cuMemPoolExportPointer);
    EMM_CUDA_REQUIRED(cuMemFreeAsync);
};

} // namespace emm::async
