#include "driver.h"

#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace emm::peers {
namespace {

// Written as PTX, so that no compiler for the GPU is needed; the driver translates it.
constexpr const char spin_source[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 out)
{
    .reg .u64 %out, %begin, %now, %passed;
    .reg .pred %early;
    ld.param.u64 %out, [out];
    cvta.to.global.u64 %out, %out;
    mov.u64 %begin, %clock64;
again:
    mov.u64 %now, %clock64;
    sub.u64 %passed, %now, %begin;
    setp.lt.u64 %early, %passed, 1000000;
    @%early bra again;
    st.global.u64 [%out], %now;
    ret;
}
)";

using Resolve = CUresult (*)(const char *, void **, int, cuuint64_t,
                             CUdriverProcAddressQueryResult *);

Resolve open_system_driver() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        throw std::runtime_error("libcuda.so.1 cannot be opened");
    }
    const auto resolve = reinterpret_cast<Resolve>(dlsym(library, "cuGetProcAddress_v2"));
    if (!resolve) {
        throw std::runtime_error("libcuda.so.1 is older than CUDA 12.0");
    }
    return resolve;
}

} // namespace

void require(CUresult result, const char *call) {
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
        throw std::runtime_error(result == CUDA_ERROR_OUT_OF_MEMORY
                                     ? std::string(call) + ": out of memory"
                                     : std::string(call) + " failed with CUDA error " +
                                           std::to_string(static_cast<int>(result)));
    }
}

void require_complete(const cuda::Entries &calls) {
    if (calls.missing()) {
        throw std::runtime_error(std::string("the driver has no ") + calls.missing());
    }
}

Driver::Driver(cuda::Find find)
    : calls_(find),
      read_use_(reinterpret_cast<ReadUse>(find("emmPeersDriverUse", EMM_CUDA_SIGNATURES))) {
    require_complete(calls_);
    require(calls_.cuInit(0), "cuInit");
    require(calls_.cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    enter();
    require(calls_.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

void Driver::enter() const {
    require(calls_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

CUstream Driver::make_stream() const {
    CUstream stream;
    require(calls_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return stream;
}

void Driver::order(CUstream earlier, CUstream later) const {
    require(calls_.cuEventRecord(event_, earlier), "cuEventRecord");
    require(calls_.cuStreamWaitEvent(later, event_, 0), "cuStreamWaitEvent");
}

void Driver::synchronize() const {
    require(calls_.cuCtxSynchronize(), "cuCtxSynchronize");
}

size_t Driver::free_memory() const {
    size_t free = 0, all = 0;
    require(calls_.cuMemGetInfo(&free, &all), "cuMemGetInfo");
    return free;
}

DriverUse Driver::use() const {
    DriverUse use;
    require(read_use_(&use.calls, &use.ns), "emmPeersDriverUse");
    return use;
}

void Driver::launch_spin(CUstream stream, CUdeviceptr address) {
    if (!spin_) {
        CUmodule module;
        require(calls_.cuModuleLoadData(&module, spin_source), "cuModuleLoadData");
        require(calls_.cuModuleGetFunction(&spin_, module, "spin"), "cuModuleGetFunction");
    }
    void *arguments[] = {&address};
    require(calls_.cuLaunchKernel(spin_, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr),
            "cuLaunchKernel");
}

emm_function system_entry(const char *name, int32_t cuda_version) {
    static const Resolve resolve = open_system_driver();
    void *found = nullptr;
    return resolve(name, &found, cuda_version, 0, nullptr) == CUDA_SUCCESS
               ? reinterpret_cast<emm_function>(found)
               : nullptr;
}

} // namespace emm::peers
