#pragma once

#include "json.h"

#include <emm/emm.h>

#include <cuda.h>

#include <string>

namespace emm::tool {

// The driver functions that the tool itself calls: streams, events, and the writes and checks of
// --touch. They are the driver's own, so emm's meter does not count them.
#define EMM_TOOL_ENTRIES(entry)                                                                    \
    entry(cuGetErrorName) entry(cuDeviceGet) entry(cuDeviceGetName) entry(cuDeviceTotalMem)        \
        entry(cuDeviceGetAttribute) entry(cuDeviceGetUuid) entry(cuDevicePrimaryCtxRetain)         \
            entry(cuCtxSetCurrent) entry(cuStreamCreate) entry(cuStreamDestroy)                    \
                entry(cuStreamSynchronize) entry(cuStreamWaitEvent) entry(cuEventCreate)           \
                    entry(cuEventDestroy) entry(cuEventRecord) entry(cuEventSynchronize)           \
                        entry(cuMemsetD8Async) entry(cuMemsetD32Async) entry(cuMemcpyDtoHAsync)    \
                            entry(cuMemHostAlloc) entry(cuMemFreeHost) entry(cuMemAlloc)           \
                                entry(cuMemFree) entry(cuMemGetInfo) entry(cuLaunchHostFunc)

struct DriverCalls {
#define EMM_TOOL_MEMBER(name) decltype(&::name) name = nullptr;
    EMM_TOOL_ENTRIES(EMM_TOOL_MEMBER)
#undef EMM_TOOL_MEMBER
};

// Loads the driver on the first call. Throws Failure.
const DriverCalls &driver_calls();

// Any entry, with its signature of CUDA 12.0. Throws Failure if there is none.
emm_function driver_entry(const char *name);
template <class Entry> Entry driver_entry(const char *name) {
    return reinterpret_cast<Entry>(driver_entry(name));
}

// Throws Failure unless a driver call of the tool has succeeded.
void require_cuda(CUresult result, const char *call);

// {"name", "version", "simulated", "devices": [{"name", "uuid", "memory", "compute_capability"}]}
Json describe_driver();

// "simulated driver (PATH), CUDA 13.0, 1 device: NAME"
std::string driver_line(const Json &driver);

// Uses of memory, so far, that were not ordered after its previous owner's, as the simulated driver
// counts them, and its words on the latest; none on a real one.
struct Races {
    uint64_t count = 0;
    std::string latest;
};
Races races_seen();

} // namespace emm::tool
