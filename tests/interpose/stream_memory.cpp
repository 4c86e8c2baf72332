#include "cases.h"
#include "objects.h"

namespace {

void on_stream(CUstream stream, const char *name) {
    const CUdeviceptr address = allocate_async(mib, stream);
    NEED(fill(address, mib, 21, stream));
    fact(address % 256 == 0, "%s: aligned", name);
    fact(holds(address, mib, 21, stream), "%s: bytes ok", name);
    result(cu.cuMemFreeAsync(address, stream), CUDA_SUCCESS, "%s: free", name);
}

// Memory that is freed on one stream under work, and taken by another without a wait of the host.
void handed_over(CUstream from, CUstream to) {
    constexpr int rounds = 100;
    int right = 0;
    for (int round = 0; round < rounds; ++round) {
        const CUdeviceptr first = allocate_async(mib, from);
        NEED(fill(first, mib, 0xAAAAAAAA, from));
        NEED(cu.cuMemFreeAsync(first, from));
        const CUdeviceptr second = allocate_async(mib, to);
        NEED(fill(second, mib, 0x55555555, to));
        right += holds(second, mib, 0x55555555, to);
        NEED(cu.cuMemFreeAsync(second, to));
    }
    fact(right == rounds, "%d blocks between two streams: bytes ok", rounds);
}

void freed_elsewhere(CUstream maker, CUstream user) {
    const CUdeviceptr address = allocate_async(mib, maker);
    NEED(fill(address, mib, 31, maker));
    order(maker, user);
    fact(holds(address, mib, 31, user), "a stream that waits for an event sees the bytes");
    NEED(fill(address, mib, 32, user));
    result(cu.cuMemFreeAsync(address, user), CUDA_SUCCESS, "free on that stream");
    const CUdeviceptr next = allocate_async(mib, maker);
    NEED(fill(next, mib, 33, maker));
    fact(holds(next, mib, 33, maker), "the next block of the first stream: bytes ok");
    NEED(cu.cuMemFreeAsync(next, maker));
    NEED(cu.cuStreamSynchronize(user));
}

void other_frees(CUstream stream) {
    const CUdeviceptr async = allocate_async(mib, stream);
    NEED(fill(async, mib, 41, stream));
    NEED(cu.cuStreamSynchronize(stream));
    result(cu.cuMemFree(async), CUDA_SUCCESS, "cuMemFree of cuMemAllocAsync's");
    const CUdeviceptr plain = allocate(mib);
    NEED(fill(plain, mib, 42, stream));
    result(cu.cuMemFreeAsync(plain, stream), CUDA_SUCCESS, "cuMemFreeAsync of cuMemAlloc's");
    NEED(cu.cuStreamSynchronize(stream));
}

} // namespace

void async_case() {
    const Primary primary;
    const Stream one, other, blocking(CU_STREAM_DEFAULT);
    on_stream(one, "a stream");
    on_stream(blocking, "a blocking stream");
    on_stream(nullptr, "stream 0");
    on_stream(CU_STREAM_LEGACY, "the legacy stream");
    on_stream(CU_STREAM_PER_THREAD, "the thread's stream");
    handed_over(one, other);
    handed_over(one, one);
    freed_elsewhere(one, other);
    other_frees(one);
    CUdeviceptr address = 7;
    result(cu.cuMemAllocAsync(&address, 0, one), CUDA_SUCCESS, "0 bytes");
    told(address == 0 ? "none" : address == 7 ? "not written" : "some", "0 bytes: the address");
    result(cu.cuMemAllocAsync(&address, size_t(1) << 50, one), CUDA_ERROR_OUT_OF_MEMORY, "1 PiB");
    CUcontext popped = nullptr;
    NEED(cu.cuCtxPopCurrent(&popped));
    result(cu.cuMemAllocAsync(&address, 4096, nullptr), CUDA_ERROR_INVALID_CONTEXT,
           "stream 0 with no current context");
    result(cu.cuMemAllocAsync(&address, 4096, one), CUDA_SUCCESS,
           "a stream with no current context");
    for (const CUstream cudas_own : {CUstream(nullptr), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
        result(cu.cuMemFreeAsync(address, cudas_own), CUDA_ERROR_INVALID_CONTEXT,
               "free on a stream of no context");
    }
    result(cu.cuMemFreeAsync(address, one), CUDA_SUCCESS, "its free");
    NEED(cu.cuCtxPushCurrent(popped));
}

namespace {

void from_pool(CUmemoryPool pool, CUstream stream, const char *name) {
    CUdeviceptr address = 0;
    NEED(cu.cuMemAllocFromPoolAsync(&address, mib, pool, stream));
    NEED(fill(address, mib, 51, stream));
    fact(holds(address, mib, 51, stream), "%s: bytes ok", name);
    fact(pool_of(address) == pool, "%s: the block says which pool it is of", name);
    result(cu.cuMemFreeAsync(address, stream), CUDA_SUCCESS, "%s: free", name);
    NEED(cu.cuStreamSynchronize(stream));
}

void as_current(CUmemoryPool pool, CUmemoryPool own, CUstream stream) {
    CUmemoryPool current = nullptr;
    NEED(cu.cuDeviceSetMemPool(0, pool));
    NEED(cu.cuDeviceGetMemPool(&current, 0));
    fact(current == pool, "the device's pool can be set");
    const CUdeviceptr address = allocate_async(mib, stream);
    fact(pool_of(address) == pool, "cuMemAllocAsync takes from it");
    fact(used(pool) >= mib, "it counts what is used");
    NEED(cu.cuMemFreeAsync(address, stream));
    NEED(cu.cuDeviceSetMemPool(0, own));
    const CUdeviceptr after = allocate_async(mib, stream);
    fact(pool_of(after) == own, "and from the default pool when that is set again");
    NEED(cu.cuMemFreeAsync(after, stream));
    NEED(cu.cuStreamSynchronize(stream));
}

void by_location(CUmemoryPool pool, CUmemoryPool own, CUstream stream) {
    CUmemLocation device = {};
    device.type = CU_MEM_LOCATION_TYPE_DEVICE;
    NEED(cu.cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
    const CUdeviceptr address = allocate_async(mib, stream);
    fact(pool_of(address) == pool, "the device's pool can be set by its location");
    NEED(cu.cuMemFreeAsync(address, stream));
    NEED(cu.cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_PINNED, own));
    const CUdeviceptr after = allocate_async(mib, stream);
    fact(pool_of(after) == own, "and the default one again");
    NEED(cu.cuMemFreeAsync(after, stream));
    NEED(cu.cuStreamSynchronize(stream));
}

} // namespace

void pools_case() {
    const Primary primary;
    const Stream stream;
    CUmemoryPool own = nullptr, current = nullptr;
    NEED(cu.cuDeviceGetDefaultMemPool(&own, 0));
    NEED(cu.cuDeviceGetMemPool(&current, 0));
    fact(current == own, "the default pool is the device's at first");
    uint64_t all = ~uint64_t(0), threshold = 0;
    result(cu.cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all), CUDA_SUCCESS,
           "its threshold is set");
    NEED(cu.cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    fact(threshold == all, "and read");
    from_pool(own, stream, "the default pool");
    const CUmemoryPool pool = make_pool();
    from_pool(pool, stream, "another pool");
    as_current(pool, own, stream);
    by_location(pool, own, stream);
    result(cu.cuMemPoolTrimTo(own, 0), CUDA_SUCCESS, "trim of the default pool");
    result(cu.cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS, "trim of another pool");
    result(cu.cuMemPoolDestroy(own), CUDA_ERROR_INVALID_VALUE, "the default pool's end");
    result(cu.cuMemPoolDestroy(pool), CUDA_SUCCESS, "another pool's end");
}

namespace {

void priorities_and_flags() {
    CUstream stream = nullptr;
    unsigned flags = 7;
    NEED(cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    NEED(cu.cuStreamGetFlags(stream, &flags));
    fact(flags == CU_STREAM_NON_BLOCKING, "a stream with a priority has its flags");
    on_stream(stream, "a stream with a priority");
    result(cu.cuStreamDestroy(stream), CUDA_SUCCESS, "its end");
}

} // namespace

// Streams that end under work, and other streams that get their handles.
void streams_case() {
    constexpr int rounds = 100;
    const Primary primary;
    unsigned long long last = 0;
    int right = 0, new_ids = 0;
    priorities_and_flags();
    CUdeviceptr left = 0;
    for (int round = 0; round < rounds; ++round) {
        const Stream stream;
        unsigned long long id = 0;
        NEED(cu.cuStreamGetId(stream, &id));
        new_ids += id != last;
        last = id;
        const CUdeviceptr address = allocate_async(mib, stream);
        NEED(fill(address, mib, 61, stream));
        right += left == 0 || holds(left, mib, 61, stream);
        if (left) {
            NEED(cu.cuMemFreeAsync(left, stream));
        }
        NEED(cu.cuCtxSynchronize());
        left = address; // freed on the next stream
        const CUdeviceptr freed = allocate_async(mib, stream);
        NEED(fill(freed, mib, 62, stream));
        NEED(cu.cuMemFreeAsync(freed, stream)); // under work when the stream ends
    }
    fact(new_ids == rounds, "%d streams: each has an id of its own", rounds);
    fact(right == rounds, "%d blocks that outlived their streams: bytes ok", rounds);
    result(cu.cuMemFree(left), CUDA_SUCCESS, "free of the last one");
}
