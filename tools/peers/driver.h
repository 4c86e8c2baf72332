#pragma once

#include <cuda.h>

#include <cstddef>
#include <functional>

namespace emm::peers {

// What a workload asks of the driver itself, on the primary context of device 0.
class Driver {
public:
    // Finds a driver function of CUDA 12.0's signature; null: there is none.
    using Lookup = std::function<void *(const char *name)>;

    // Enters the context. Throws std::runtime_error, as everything here does.
    explicit Driver(const Lookup &lookup);

    // Makes the context current to the calling thread.
    void enter() const;
    CUstream make_stream() const; // a non-blocking one, which lives as long as the process
    // What `later` does from now on waits for what `earlier` has been given so far.
    void order(CUstream earlier, CUstream later) const;
    void synchronize() const;
    size_t free_memory() const;

    bool can_launch() const { return module_load_ != nullptr; }
    // A kernel that counts a million clock cycles and writes 8 bytes to `address`.
    void launch_spin(CUstream stream, CUdeviceptr address);

private:
    decltype(&::cuCtxSetCurrent) set_current_ = nullptr;
    decltype(&::cuCtxSynchronize) synchronize_ = nullptr;
    decltype(&::cuStreamCreate) stream_create_ = nullptr;
    decltype(&::cuStreamWaitEvent) stream_wait_ = nullptr;
    decltype(&::cuEventRecord) event_record_ = nullptr;
    decltype(&::cuMemGetInfo) get_info_ = nullptr;
    decltype(&::cuModuleLoadData) module_load_ = nullptr;
    decltype(&::cuModuleGetFunction) module_function_ = nullptr;
    decltype(&::cuLaunchKernel) launch_ = nullptr;
    CUcontext context_ = nullptr;
    CUevent event_ = nullptr;
    CUfunction spin_ = nullptr;
};

// Throws, naming the call, unless it has succeeded.
void require(CUresult result, const char *call);

// Looks in the machine's libcuda.so.1. Throws if it cannot be opened.
Driver::Lookup system_driver();

} // namespace emm::peers
