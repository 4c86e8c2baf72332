#pragma once

#include <emm/emm.h>

#include <cuda.h>
#include <stdexcept>
#include <string>

// The driver entries that the traffic itself needs, with their CUDA 12.0 signatures.
struct Cuda {
#define TRAFFIC_ENTRIES(entry)                                                                     \
    entry(cuCtxSetCurrent) entry(cuStreamCreate) entry(cuStreamDestroy) entry(cuStreamSynchronize) \
        entry(cuStreamWaitEvent) entry(cuEventCreate) entry(cuEventRecord) entry(cuEventDestroy)   \
            entry(cuMemsetD32Async) entry(cuMemcpyDtoHAsync) entry(cuCtxSynchronize)               \
                entry(cuStreamBeginCapture) entry(cuStreamEndCapture) entry(cuGraphLaunch)         \
                    entry(cuGraphInstantiateWithFlags) entry(cuGraphDestroy)                       \
                        entry(cuGraphExecDestroy)
#define TRAFFIC_MEMBER(name) decltype(&::name) name = load<decltype(&::name)>(#name);
    TRAFFIC_ENTRIES(TRAFFIC_MEMBER)
#undef TRAFFIC_MEMBER

    template <class Function> static Function load(const char *name) {
        const auto entry = reinterpret_cast<Function>(emm_driver_entry(name, 12000));
        if (!entry) {
            throw std::runtime_error(std::string("the driver has no ") + name);
        }
        return entry;
    }
};

// One context as emm and as CUDA know it.
struct Gpu {
    emm_context *emm = nullptr;
    CUcontext cuda = nullptr;
};

inline void check(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        throw std::runtime_error(std::string(what) + ": CUDA error " + std::to_string(result));
    }
}

inline void check(emm_status status, const char *what) {
    if (status < EMM_OK) {
        throw std::runtime_error(std::string(what) + ": " + emm_last_error()->text);
    }
}
