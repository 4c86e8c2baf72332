#include "cases.h"
#include "objects.h"

namespace {

CUmemoryPool default_pool(CUdevice device) {
    CUmemoryPool pool = nullptr;
    NEED(cu.cuDeviceGetDefaultMemPool(&pool, device));
    return pool;
}

void counts_all_contexts() {
    const Primary primary;
    const Stream one;
    const CUmemoryPool pool = default_pool(0);
    uint64_t keeps = ~uint64_t(0), before = 0;
    NEED(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &before));
    NEED(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keeps));
    const CUdeviceptr first = allocate_async(64 * mib, one);
    const Second context(0);
    const Stream other;
    const CUdeviceptr second = allocate_async(64 * mib, other);
    fact(used(pool) >= 128 * mib, "memory of two contexts of a device is used");
    fact(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 128 * mib, "and was at most");
    fact(reserved(pool) >= 128 * mib, "and is reserved");
    NEED(cu.cuMemFreeAsync(first, one));
    NEED(cu.cuMemFreeAsync(second, other));
    NEED(cu.cuStreamSynchronize(one));
    NEED(cu.cuStreamSynchronize(other));
    fact(used(pool) == 0, "nothing is used after the frees");
    result(cu.cuMemPoolTrimTo(pool, 64 * mib), CUDA_SUCCESS, "trim to 64 MiB");
    fact(reserved(pool) <= 64 * mib, "no more is reserved then");
    result(cu.cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS, "trim to nothing");
    fact(reserved(pool) == 0, "nothing is reserved then");
    NEED(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &before));
}

void set_access(CUmemoryPool pool, CUdevice device, CUmemAccess_flags flags) {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = flags;
    NEED(cu.cuMemPoolSetAccess(pool, &access, 1));
}

void is_used_from(CUcontext context, CUstream stream, CUdeviceptr memory, const char *name) {
    result(write_by_kernel(memory, 141, context, stream), CUDA_SUCCESS,
           "%s: a kernel of device 0 uses it", name);
    fact(holds(memory, mib, 141, stream), "%s: bytes ok", name);
}

// Access that is given before the device has a context, and to later contexts.
void gives_access_to_all_contexts(CUmemoryPool pool, const Primary &here, CUstream stream) {
    CUmemoryPool before = nullptr;
    const Primary there(1);
    NEED(cu.cuDeviceGetMemPool(&before, 1));
    NEED(cu.cuDeviceSetMemPool(1, pool));
    const Stream one;
    const CUdeviceptr first = allocate_async(mib, one);
    const Second context(1);
    const Stream other;
    const CUdeviceptr second = allocate_async(mib, other);
    NEED(cu.cuStreamSynchronize(one));
    NEED(cu.cuStreamSynchronize(other));
    is_used_from(here.context, stream, first, "memory of the first context of device 1");
    is_used_from(here.context, stream, second, "memory of the second one");
    NEED(cu.cuMemFreeAsync(first, one));
    NEED(cu.cuMemFreeAsync(second, other));
    NEED(cu.cuDeviceSetMemPool(1, before));
}

CUdeviceptr allocate_there(CUmemoryPool pool, CUstream stream) {
    CUdeviceptr memory = 0;
    NEED(cu.cuMemAllocFromPoolAsync(&memory, 64 * mib, pool, stream));
    return memory;
}

// On a stream of device 0, memory of device 1.
void serves_streams_of_other_devices(CUmemoryPool pool, CUstream stream, const char *name) {
    const uint64_t used_here = used(default_pool(0)), used_there = used(pool);
    CUmemoryPool told = nullptr;
    int ordinal = 7;
    const CUdeviceptr memory = allocate_there(pool, stream);
    NEED(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
    fact(ordinal == 1, "%s: it says so", name);
    NEED(cu.cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory + 5));
    fact(told == pool, "%s: of that device's pool", name);
    fact(used(pool) >= used_there + 64 * mib, "%s: which counts it", name);
    fact(used(default_pool(0)) == used_here, "%s: and device 0's does not", name);
    result(cu.cuMemFreeAsync(memory, stream), CUDA_SUCCESS, "%s: free", name);
    NEED(cu.cuStreamSynchronize(stream));
    const CUdeviceptr next = allocate_async(mib, stream);
    NEED(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, next));
    fact(ordinal == 0, "%s: the stream's own device is asked after that", name);
    NEED(cu.cuMemFreeAsync(next, stream));
}

bool has_two_devices() {
    int count = 0, reachable = 0;
    NEED(cu.cuInit(0));
    NEED(cu.cuDeviceGetCount(&count));
    return count >= 2 && cu.cuDeviceCanAccessPeer(&reachable, 0, 1) == CUDA_SUCCESS && reachable;
}

} // namespace

void device_pools_case() {
    counts_all_contexts();
    if (!has_two_devices()) {
        return skipped("there is one device, or none that it reaches");
    }
    const Primary here;
    const Stream stream;
    const CUmemoryPool own = make_keeping_pool(1);
    serves_streams_of_other_devices(default_pool(1), stream,
                                    "memory of a device without a context");
    serves_streams_of_other_devices(own, stream, "a pool of a device without a context");
    const Primary there(1);
    NEED(cu.cuMemFree(allocate(mib)));
    NEED(cu.cuCtxSetCurrent(here.context));
    serves_streams_of_other_devices(default_pool(1), stream, "memory of a device with one");
    serves_streams_of_other_devices(own, stream, "a pool of a device with one");
    NEED(cu.cuMemPoolDestroy(own));
}

void pool_access_case() {
    if (!has_two_devices()) {
        return skipped("there is one device, or none that it reaches");
    }
    const Primary here;
    const Stream stream;
    const CUmemoryPool own = make_keeping_pool(1);
    for (const CUmemoryPool pool : {default_pool(1), own}) {
        set_access(pool, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        gives_access_to_all_contexts(pool, here, stream);
        NEED(cu.cuCtxSetCurrent(here.context));
        const CUdeviceptr memory = allocate_there(pool, stream);
        is_used_from(here.context, stream, memory, "memory of device 1 on a stream of device 0");
        NEED(cu.cuMemFreeAsync(memory, stream));
        set_access(pool, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
    NEED(cu.cuMemPoolDestroy(own));
}
