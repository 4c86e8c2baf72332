#include "cases.h"
#include "objects.h"

#include <simcuda.h>

namespace {

// A kernel of the stream's context writes it. Where there is no such kernel, a copy does.
CUresult write_by_kernel(CUdeviceptr address, CUstream stream) {
    void *entry = nullptr;
    CUdriverProcAddressQueryResult found;
    if (cu.cuGetProcAddress("simcuda_launch", &entry, 12000, 0, &found) != CUDA_SUCCESS || !entry) {
        return fill(address, mib, 135, stream);
    }
    const simcuda_range range = {address, mib, 1, 0};
    return CUresult(
        reinterpret_cast<decltype(&simcuda_launch)>(entry)(stream, nullptr, nullptr, &range, 1));
}

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
    result(write_by_kernel(memory, stream), CUDA_SUCCESS, "use after that");
    result(cu.cuCtxDestroy(third), CUDA_SUCCESS, "the end of a third context with access");
    result(write_by_kernel(memory, stream), CUDA_SUCCESS, "use after that, too");
    NEED(cu.cuCtxSetCurrent(here_context));
    NEED(cu.cuStreamSynchronize(stream));
    NEED(cu.cuCtxDisablePeerAccess(there_context));
    NEED(cu.cuCtxDestroy(second));
    NEED(cu.cuMemFree(memory));
}

void across(CUdeviceptr there, CUstream here, unsigned value, const char *name) {
    NEED(fill(there, mib, value, here));
    fact(holds(there, mib, value, here), "%s: a stream of device 0 uses it", name);
}

void copied(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
            CUstream stream) {
    NEED(fill(from, mib, 131, stream));
    NEED(cu.cuMemcpyPeerAsync(to, to_context, from, from_context, mib, stream));
    fact(holds(to, mib, 131, stream), "a copy between the devices: bytes ok");
}

void stream_ordered(CUstream stream) {
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
    across(address, stream, 134, "memory of that pool");
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
    across(before, stream, 132, "memory of before");
    NEED(cu.cuCtxSetCurrent(there_context));
    const CUdeviceptr after = allocate(mib);
    stream_ordered(stream);
    NEED(cu.cuCtxSetCurrent(here_context));
    across(after, stream, 133, "memory of after");
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
