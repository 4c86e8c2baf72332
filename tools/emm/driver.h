#pragma once

#include "problem.h"

#include <emm/cuda.h>
#include <emm/emm.h>

#include <string>

namespace emm::tool {

// The driver functions that the tool itself calls: streams, events, and the writes and checks of
// --touch. They are the driver's own entries, so emm's meter does not count the calls.
struct DriverCalls : cuda::Entries {
    DriverCalls() : Entries(&emm_driver_entry) {}

    EMM_CUDA_REQUIRED(cuGetErrorName);
    EMM_CUDA_REQUIRED(cuDeviceGet);
    EMM_CUDA_REQUIRED(cuDeviceGetName);
    EMM_CUDA_REQUIRED(cuDeviceTotalMem);
    EMM_CUDA_REQUIRED(cuDeviceGetAttribute);
    EMM_CUDA_REQUIRED(cuDeviceGetUuid);
    EMM_CUDA_REQUIRED(cuDevicePrimaryCtxRetain);
    EMM_CUDA_REQUIRED(cuCtxSetCurrent);
    EMM_CUDA_REQUIRED(cuStreamCreate);
    EMM_CUDA_REQUIRED(cuStreamDestroy);
    EMM_CUDA_REQUIRED(cuStreamSynchronize);
    EMM_CUDA_REQUIRED(cuStreamWaitEvent);
    EMM_CUDA_REQUIRED(cuEventCreate);
    EMM_CUDA_REQUIRED(cuEventDestroy);
    EMM_CUDA_REQUIRED(cuEventRecord);
    EMM_CUDA_REQUIRED(cuEventSynchronize);
    EMM_CUDA_REQUIRED(cuMemsetD8Async);
    EMM_CUDA_REQUIRED(cuMemsetD32Async);
    EMM_CUDA_REQUIRED(cuMemcpyDtoHAsync);
    EMM_CUDA_REQUIRED(cuMemHostAlloc);
    EMM_CUDA_REQUIRED(cuMemFreeHost);
    EMM_CUDA_REQUIRED(cuMemAlloc);
    EMM_CUDA_REQUIRED(cuMemFree);
    EMM_CUDA_REQUIRED(cuMemGetInfo);
    EMM_CUDA_REQUIRED(cuLaunchHostFunc);
};

// Loads the driver on the first call. Throws Failure.
const DriverCalls &driver_calls();

// Any entry, with its signature of CUDA 12.0. Throws Failure if the driver lacks it.
emm_function driver_entry(const char *name);
template <class Entry> Entry driver_entry(const char *name) {
    return reinterpret_cast<Entry>(driver_entry(name));
}
#define EMM_DRIVER_ENTRY(name) (::emm::tool::driver_entry<decltype(&::name)>(#name))

// Throws Failure unless a driver call of the tool has succeeded: of an entry above, or of any
// entry.
void require_cuda(CUresult result, const char *call);
#define EMM_REQUIRE_CUDA(name, ...)                                                                \
    ::emm::tool::require_cuda(::emm::tool::driver_calls().name(__VA_ARGS__), #name)
#define EMM_REQUIRE_CUDA_ENTRY(name, ...)                                                          \
    ::emm::tool::require_cuda(::emm::tool::driver_entry<decltype(&::name)>(#name)(__VA_ARGS__),    \
                              #name)

bool is_simulated();

// {"name", "version", "simulated", "devices": [{"name", "uuid", "memory", "limit", ...}]}
Json describe_driver();

// "simulated driver (PATH), CUDA 13.0, 1 device: NAME"
std::string driver_line(const Json &driver);

// Uses of memory, so far, that were not ordered behind its previous owner's, as the simulated
// driver counts them, and its text on the latest; a real driver reports none.
struct Races {
    uint64_t count = 0;
    std::string latest;
};
Races races_seen();

} // namespace emm::tool
