#pragma once

#include "../parts/ends.h"

#include <emm/cuda.h>
#include <emm/emm.h>

// The driver entries that the traffic itself needs.
struct Cuda : emm::cuda::Entries {
    Cuda() : Entries(&emm_driver_entry) {
        if (missing()) {
            throw std::runtime_error(std::string("the driver has no ") + missing());
        }
    }

    EMM_CUDA_REQUIRED(cuInit);
    EMM_CUDA_REQUIRED(cuCtxDestroy);
    EMM_CUDA_REQUIRED(cuCtxSetCurrent);
    EMM_CUDA_REQUIRED(cuStreamCreate);
    EMM_CUDA_REQUIRED(cuStreamDestroy);
    EMM_CUDA_REQUIRED(cuStreamSynchronize);
    EMM_CUDA_REQUIRED(cuStreamWaitEvent);
    EMM_CUDA_REQUIRED(cuEventCreate);
    EMM_CUDA_REQUIRED(cuEventRecord);
    EMM_CUDA_REQUIRED(cuEventDestroy);
    EMM_CUDA_REQUIRED(cuMemsetD32Async);
    EMM_CUDA_REQUIRED(cuMemcpyDtoHAsync);
    EMM_CUDA_REQUIRED(cuCtxSynchronize);
    EMM_CUDA_REQUIRED(cuStreamBeginCapture);
    EMM_CUDA_REQUIRED(cuStreamEndCapture);
    EMM_CUDA_REQUIRED(cuGraphLaunch);
    EMM_CUDA_REQUIRED(cuGraphInstantiateWithFlags);
    EMM_CUDA_REQUIRED(cuGraphDestroy);
    EMM_CUDA_REQUIRED(cuGraphExecDestroy);
    // The simulated driver has none of these.
    EMM_CUDA_OPTIONAL(cuModuleLoadData);
    EMM_CUDA_OPTIONAL(cuModuleGetFunction);
    EMM_CUDA_OPTIONAL(cuLaunchKernel);
};

// One context as emm and as CUDA know it.
struct Gpu {
    emm_context *emm = nullptr;
    CUcontext cuda = nullptr;
};

inline void check(emm_status status, const char *what) {
    if (status < EMM_OK) {
        throw std::runtime_error(std::string(what) + ": " + emm_last_error()->text);
    }
}
