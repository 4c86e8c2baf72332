#include "driver.h"

#include <dlfcn.h>
#include <stdexcept>
#include <string>

namespace emm::peers {
namespace {

// Written out, so that no compiler for the GPU is needed; the driver translates it.
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

template <class Entry>
void find(const Driver::Lookup &lookup, const char *name, Entry &ret_entry, bool needed = true) {
    ret_entry = reinterpret_cast<Entry>(lookup(name));
    if (!ret_entry && needed) {
        throw std::runtime_error(std::string("the driver has no ") + name);
    }
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

Driver::Driver(const Lookup &lookup) {
    decltype(&::cuInit) init = nullptr;
    decltype(&::cuDevicePrimaryCtxRetain) retain = nullptr;
    decltype(&::cuEventCreate) event_create = nullptr;
    find(lookup, "cuInit", init);
    find(lookup, "cuDevicePrimaryCtxRetain", retain);
    find(lookup, "cuEventCreate", event_create);
    find(lookup, "cuCtxSetCurrent", set_current_);
    find(lookup, "cuCtxSynchronize", synchronize_);
    find(lookup, "cuStreamCreate", stream_create_);
    find(lookup, "cuStreamWaitEvent", stream_wait_);
    find(lookup, "cuEventRecord", event_record_);
    find(lookup, "cuMemGetInfo", get_info_);
    find(lookup, "cuModuleLoadData", module_load_, false);
    find(lookup, "cuModuleGetFunction", module_function_, false);
    find(lookup, "cuLaunchKernel", launch_, false);
    require(init(0), "cuInit");
    require(retain(&context_, 0), "cuDevicePrimaryCtxRetain");
    enter();
    require(event_create(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

void Driver::enter() const {
    require(set_current_(context_), "cuCtxSetCurrent");
}

CUstream Driver::make_stream() const {
    CUstream stream;
    require(stream_create_(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return stream;
}

void Driver::order(CUstream earlier, CUstream later) const {
    require(event_record_(event_, earlier), "cuEventRecord");
    require(stream_wait_(later, event_, 0), "cuStreamWaitEvent");
}

void Driver::synchronize() const {
    require(synchronize_(), "cuCtxSynchronize");
}

size_t Driver::free_memory() const {
    size_t free = 0, all = 0;
    require(get_info_(&free, &all), "cuMemGetInfo");
    return free;
}

void Driver::launch_spin(CUstream stream, CUdeviceptr address) {
    if (!spin_) {
        CUmodule module;
        require(module_load_(&module, spin_source), "cuModuleLoadData");
        require(module_function_(&spin_, module, "spin"), "cuModuleGetFunction");
    }
    void *arguments[] = {&address};
    require(launch_(spin_, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr), "cuLaunchKernel");
}

Driver::Lookup system_driver() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        throw std::runtime_error("libcuda.so.1 cannot be opened");
    }
    using Resolve =
        CUresult (*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    const auto resolve = reinterpret_cast<Resolve>(dlsym(library, "cuGetProcAddress_v2"));
    if (!resolve) {
        throw std::runtime_error("libcuda.so.1 is older than CUDA 12.0");
    }
    return [resolve](const char *name) -> void * {
        void *found = nullptr;
        return resolve(name, &found, 12000, 0, nullptr) == CUDA_SUCCESS ? found : nullptr;
    };
}

} // namespace emm::peers
