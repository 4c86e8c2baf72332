#pragma once

#include <emm/cuda.h>

#include <cstddef>
#include <cstdint>

namespace emm::peers {

// The driver's entries that workloads call. A driver may be unable to launch kernels.
struct DriverCalls : cuda::Entries {
    explicit DriverCalls(cuda::Find find) : Entries(find) {}

    EMM_CUDA_REQUIRED(cuInit);
    EMM_CUDA_REQUIRED(cuDevicePrimaryCtxRetain);
    EMM_CUDA_REQUIRED(cuCtxSetCurrent);
    EMM_CUDA_REQUIRED(cuCtxSynchronize);
    EMM_CUDA_REQUIRED(cuStreamCreate);
    EMM_CUDA_REQUIRED(cuStreamWaitEvent);
    EMM_CUDA_REQUIRED(cuEventCreate);
    EMM_CUDA_REQUIRED(cuEventRecord);
    EMM_CUDA_REQUIRED(cuMemGetInfo);
    EMM_CUDA_OPTIONAL(cuModuleLoadData);
    EMM_CUDA_OPTIONAL(cuModuleGetFunction);
    EMM_CUDA_OPTIONAL(cuLaunchKernel);
};

// The calls of the driver, by all threads.
struct DriverUse {
    uint64_t calls = 0, ns = 0;
};

// The driver as workloads use it, on the primary context of device 0.
class Driver {
public:
    // Enters the context. Throws std::runtime_error, as everything here does.
    explicit Driver(cuda::Find find);

    // Makes the context current to the calling thread.
    void enter() const;
    CUstream make_stream() const; // non-blocking; lives as long as the process
    // Later work of `later` waits for the present work of `earlier`.
    void order(CUstream earlier, CUstream later) const;
    void synchronize() const;
    size_t free_memory() const;

    // Whether the driver is behind metered_driver.cpp, and the calls that have passed through that
    // so far.
    bool is_metered() const { return read_use_ != nullptr; }
    DriverUse use() const;

    bool can_launch() const { return calls_.cuModuleLoadData != nullptr; }
    // A kernel that counts a million clock cycles and writes 8 bytes to `address`.
    void launch_spin(CUstream stream, CUdeviceptr address);

private:
    using ReadUse = CUresult (*)(uint64_t *ret_calls, uint64_t *ret_ns);

    const DriverCalls calls_;
    const ReadUse read_use_;
    CUcontext context_ = nullptr;
    CUevent event_ = nullptr;
    CUfunction spin_ = nullptr;
};

// Throws a failure that names the call, unless the call has succeeded.
void require(CUresult result, const char *call);

// Throws if a required entry of the table is missing.
void require_complete(const cuda::Entries &calls);

// Finds entries in the machine's libcuda.so.1. Throws if it cannot be opened.
emm_function system_entry(const char *name, int32_t cuda_version);

} // namespace emm::peers
