// Common steps of the tests of a pause.
#pragma once

#include "simulation.h"

#include <algorithm>

namespace pool_test {

template <class Function> Function *driver_call(const char *name) {
    return reinterpret_cast<Function *>(host().driver(name, 12000));
}

inline size_t pause(Simulation &sim, uint32_t flags = EMM_PAUSE_KEEP,
                    emm_status expected = EMM_OK) {
    size_t released = 1;
    const emm_status status = pool().pause(sim.manager, flags, &released);
    INFO(last_failure().text);
    REQUIRE(status == expected);
    return released;
}

inline emm_status try_pause(Simulation &sim, uint32_t flags = EMM_PAUSE_KEEP) {
    size_t released = 1;
    const emm_status status = pool().pause(sim.manager, flags, &released);
    CHECK(released == 1);
    return status;
}

inline void resume(Simulation &sim, uint32_t flags = 0, emm_status expected = EMM_OK) {
    const emm_status status = pool().resume(sim.manager, flags);
    INFO(last_failure().text);
    REQUIRE(status == expected);
}

// Each MiB gets a number of its own; read() checks that it still has the number.
inline void write(Simulation &sim, CUdeviceptr ptr, size_t size, unsigned char first) {
    cuda().cuCtxPushCurrent(sim.context);
    for (size_t at = 0; at < size; at += MiB) {
        const size_t bytes = std::min(MiB, size - at);
        REQUIRE(cuda().cuMemsetD8Async(ptr + at, (unsigned char)(first + at / MiB), bytes,
                                       legacy) == CUDA_SUCCESS);
    }
    REQUIRE(cuda().cuCtxSynchronize() == CUDA_SUCCESS);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
}

inline bool is_as_written(Simulation &sim, CUdeviceptr ptr, size_t size, unsigned char first) {
    std::vector<unsigned char> bytes(size);
    cuda().cuCtxPushCurrent(sim.context);
    const CUresult result =
        driver_call<decltype(::cuMemcpyDtoH)>("cuMemcpyDtoH")(bytes.data(), ptr, size);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
    size_t at = 0;
    while (at < size && bytes[at] == (unsigned char)(first + at / MiB)) {
        at++;
    }
    return result == CUDA_SUCCESS && at == size;
}

} // namespace pool_test
