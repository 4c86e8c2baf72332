#include "cases.h"
#include "objects.h"

#include <simcuda.h>

namespace {

// Written as PTX, so that no compiler for the GPU is needed; the driver translates it.
constexpr const char fill_source[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry fill_words(.param .u64 to, .param .u32 words, .param .u32 value)
{
    .reg .u64 %to, %offset, %at;
    .reg .u32 %words, %value, %i, %step;
    .reg .pred %end;
    ld.param.u64 %to, [to];
    ld.param.u32 %words, [words];
    ld.param.u32 %value, [value];
    mov.u32 %i, %tid.x;
    mov.u32 %step, %ntid.x;
again:
    setp.ge.u32 %end, %i, %words;
    @%end bra done;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %at, %to, %offset;
    st.global.u32 [%at], %value;
    add.u32 %i, %i, %step;
    bra again;
done:
    ret;
}
)";

CUresult launch(CUdeviceptr address, unsigned value, CUstream stream) {
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    unsigned words = mib / sizeof value;
    void *arguments[] = {&address, &words, &value};
    NEED(entry_of<decltype(cuModuleLoadData)>("cuModuleLoadData")(&module, fill_source));
    NEED(entry_of<decltype(cuModuleGetFunction)>("cuModuleGetFunction")(&kernel, module,
                                                                        "fill_words"));
    CUresult result = entry_of<decltype(cuLaunchKernel)>("cuLaunchKernel")(
        kernel, 1, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr);
    result = result == CUDA_SUCCESS ? cu.cuStreamSynchronize(stream) : result;
    NEED(entry_of<decltype(cuModuleUnload)>("cuModuleUnload")(module));
    return result;
}

} // namespace

CUresult write_by_kernel(CUdeviceptr address, unsigned value, CUcontext context, CUstream stream) {
    CUcontext popped = nullptr;
    CUresult result = CUDA_SUCCESS;
    NEED(cu.cuCtxPushCurrent(context));
    if (const auto simulated = entry_of<decltype(simcuda_launch)>("simcuda_launch")) {
        const simcuda_range range = {address, mib, 1, 0};
        result = CUresult(simulated(stream, nullptr, nullptr, &range, 1));
        result = result == CUDA_SUCCESS ? fill(address, mib, value, stream) : result;
    } else {
        result = launch(address, value, stream);
    }
    NEED(cu.cuCtxPopCurrent(&popped));
    return result;
}

namespace {

// Two contexts of a device have access, each for itself.
void by_pairs(CUcontext here_context, CUcontext there_context) {
    CUcontext second = nullptr, third = nullptr;
    NEED(cu.cuCtxSetCurrent(there_context));
    const CUdeviceptr memory = allocate(mib);
    NEED(cu.cuCtxCreate_v2(&second, 0, 0));
    NEED(cu.cuCtxEnablePeerAccess(there_context, 0));
    NEED(cu.cuCtxCreate_v2(&third, 0, 0));
    NEED(cu.cuCtxEnablePeerAccess(there_context, 0));
    NEED(cu.cuCtxSetCurrent(here_context));
    NEED(cu.cuCtxEnablePeerAccess(there_context, 0));
    const Stream stream;
    NEED(cu.cuCtxSetCurrent(second));
    result(cu.cuCtxDisablePeerAccess(there_context), CUDA_SUCCESS, "disable in another context");
    result(write_by_kernel(memory, 135, here_context, stream), CUDA_SUCCESS, "use after that");
    result(cu.cuCtxDestroy(third), CUDA_SUCCESS, "the end of a third context with access");
    result(write_by_kernel(memory, 136, here_context, stream), CUDA_SUCCESS, "use after that, too");
    NEED(cu.cuCtxSetCurrent(here_context));
    fact(holds(memory, mib, 136, stream), "what was written then is there");
    NEED(cu.cuCtxDisablePeerAccess(there_context));
    NEED(cu.cuCtxDestroy(second));
    NEED(cu.cuMemFree(memory));
}

void across(CUdeviceptr there, CUcontext here, CUstream stream, unsigned value, const char *name) {
    NEED(write_by_kernel(there, value, here, stream));
    fact(holds(there, mib, value, stream), "%s: a kernel of device 0 uses it", name);
}

void copied(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
            CUstream stream) {
    NEED(fill(from, mib, 131, stream));
    NEED(cu.cuMemcpyPeerAsync(to, to_context, from, from_context, mib, stream));
    fact(holds(to, mib, 131, stream), "a copy between the devices: bytes ok");
}

void stream_ordered(CUcontext here, CUstream stream) {
    CUmemoryPool pool = nullptr;
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = 0;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    NEED(cu.cuDeviceGetDefaultMemPool(&pool, 1));
    result(cu.cuMemPoolSetAccess(pool, &access, 1), CUDA_SUCCESS,
           "device 0 reaches device 1's default pool");
    const Stream there;
    const CUdeviceptr address = allocate_async(mib, there);
    order(there, stream);
    across(address, here, stream, 134, "memory of that pool");
    result(cu.cuMemFree(address), CUDA_SUCCESS, "its free");
}

void with_two(CUcontext here_context, CUcontext there_context) {
    NEED(cu.cuCtxSetCurrent(there_context));
    const CUdeviceptr before = allocate(mib);
    NEED(cu.cuCtxSetCurrent(here_context));
    const Stream stream;
    const CUdeviceptr here = allocate(mib);
    result(cu.cuCtxEnablePeerAccess(there_context, 0), CUDA_SUCCESS, "enable");
    result(cu.cuCtxEnablePeerAccess(there_context, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
           "enable, the second time");
    across(before, here_context, stream, 132, "memory of before");
    NEED(cu.cuCtxSetCurrent(there_context));
    const CUdeviceptr after = allocate(mib);
    stream_ordered(here_context, stream);
    NEED(cu.cuCtxSetCurrent(here_context));
    across(after, here_context, stream, 133, "memory of after");
    copied(after, there_context, here, here_context, stream);
    int ordinal = 0;
    NEED(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, after));
    fact(ordinal == 1, "it says which device it is of");
    NEED(cu.cuMemFree(here));
    result(cu.cuMemFree(before), CUDA_SUCCESS, "free with device 0 current");
    result(cu.cuCtxDisablePeerAccess(there_context), CUDA_SUCCESS, "disable");
    result(cu.cuCtxDisablePeerAccess(there_context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
           "disable, the second time");
    NEED(cu.cuMemFree(after));
}

} // namespace

void peers_case() {
    int count = 0, reachable = 0;
    NEED(cu.cuInit(0));
    NEED(cu.cuDeviceGetCount(&count));
    if (count < 2) {
        return skipped("there is one device");
    }
    NEED(cu.cuDeviceCanAccessPeer(&reachable, 0, 1));
    fact(reachable == 1, "device 0 reaches device 1");
    const Primary there(1), here(0);
    with_two(here.context, there.context);
    by_pairs(here.context, there.context);
}
