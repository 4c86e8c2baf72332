// Behaviour: CUDA's promises about stream-ordered pools: the same on real hardware and simulated.
#include "captures.h"
#include "pending_work.h"

namespace {

struct Pool {
    explicit Pool(size_t largest = 0) {
        CUmemPoolProps properties = {};
#if CUDA_VERSION >= 12020
        properties.maxSize = largest;
#else
        (void)largest;
#endif
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        REQUIRE(cu().cuMemPoolCreate(&handle, &properties) == CUDA_SUCCESS);
    }
    ~Pool() {
        cu().cuMemPoolDestroy(handle);
    }
    uint64_t get(CUmemPool_attribute attribute) const {
        uint64_t value = 0;
        REQUIRE(cu().cuMemPoolGetAttribute(handle, attribute, &value) == CUDA_SUCCESS);
        return value;
    }
    void keep_all() const {
        uint64_t all = ~uint64_t(0);
        REQUIRE(cu().cuMemPoolSetAttribute(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all) ==
                CUDA_SUCCESS);
    }
    CUdeviceptr take(size_t size, CUstream stream) const {
        CUdeviceptr address = 0;
        REQUIRE(cu().cuMemAllocFromPoolAsync(&address, size, handle, stream) == CUDA_SUCCESS);
        return address;
    }
    CUmemoryPool handle = nullptr;
};

} // namespace

TEST_CASE("memory freed on a stream is given out on it again at once") {
    PendingWork work;
    const Device device;
    const Stream stream;
    const Pool pool;
    work.begin(stream);
    const CUdeviceptr first = pool.take(1 << 20, stream);
    REQUIRE(cu().cuMemFreeAsync(first, stream) == CUDA_SUCCESS);
    const CUdeviceptr second = pool.take(1 << 20, stream);
    CHECK(second == first);
    REQUIRE(cu().cuMemFreeAsync(second, stream) == CUDA_SUCCESS);
    work.end();
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

TEST_CASE("cuMemAllocAsync takes 0 bytes") {
    const Device device;
    const Stream stream;
    CUdeviceptr address = 77;
    CHECK(cu().cuMemAllocAsync(&address, 0, stream) == CUDA_SUCCESS);
}

TEST_CASE("a pool gives no block of a size that no device has") {
    const Device device;
    const Stream stream;
    const Pool pool;
    for (const size_t size : {~size_t(0), ~size_t(0) - 4095, size_t(1) << 50}) {
        CUdeviceptr address = 77;
        CHECK(cu().cuMemAllocFromPoolAsync(&address, size, pool.handle, stream) != CUDA_SUCCESS);
    }
}

#if CUDA_VERSION >= 12020
TEST_CASE("a pool does not grow beyond its largest size") {
    int version = 0;
    REQUIRE(cu().cuDriverGetVersion(&version) == CUDA_SUCCESS);
    if (version < 12020) {
        WARN("skipped: the driver is older than CUDA 12.2");
        return;
    }
    const Device device;
    const Stream stream;
    const Pool pool(64 << 20);
    const CUdeviceptr address = pool.take(48 << 20, stream);
    CUdeviceptr more = 0;
    CHECK(cu().cuMemAllocFromPoolAsync(&more, 48 << 20, pool.handle, stream) ==
          CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
    const CUdeviceptr again = pool.take(48 << 20, stream);
    REQUIRE(cu().cuMemFreeAsync(again, stream) == CUDA_SUCCESS);
}
#endif

TEST_CASE("a pool counts what is used and what is reserved") {
    const Device device;
    const Stream stream;
    const Pool pool;
    pool.keep_all();
    const CUdeviceptr address = pool.take(3 << 20, stream);
    CHECK(pool.get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 3 << 20);
    CHECK(pool.get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 3 << 20);
    REQUIRE(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(pool.get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    CHECK(pool.get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 3 << 20);
    CHECK(pool.get(CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 3 << 20);
    REQUIRE(cu().cuMemPoolTrimTo(pool.handle, 0) == CUDA_SUCCESS);
    CHECK(pool.get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
}

TEST_CASE("without a release threshold a wait empties the pool") {
    const Device device;
    const Stream stream;
    const Pool pool;
    const CUdeviceptr address = pool.take(3 << 20, stream);
    REQUIRE(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(pool.get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
}

TEST_CASE("a pointer from a pool names the pool, and is no memory for legacy IPC") {
    const Device device;
    const Stream stream;
    const Pool pool;
    const CUdeviceptr address = pool.take(4096, stream);
    CUmemoryPool found = nullptr;
    CUipcMemHandle exported;
    CHECK(cu().cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address) ==
          CUDA_SUCCESS);
    CHECK(found == pool.handle);
    CHECK(cu().cuIpcGetMemHandle(&exported, address) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
}

TEST_CASE("cuMemFree takes memory of a pool") {
    const Device device;
    const Stream stream;
    const Pool pool;
    const CUdeviceptr address = pool.take(4096, stream);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(cu().cuMemFree(address) == CUDA_SUCCESS);
}

TEST_CASE("stream-ordered calls need no current context when the stream has one") {
    const Device device;
    const Stream stream;
    CUcontext popped = nullptr;
    CUdeviceptr address = 0;
    REQUIRE(cu().cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
    const CUresult taken = cu().cuMemAllocAsync(&address, 4096, stream);
    const CUresult freed = taken == CUDA_SUCCESS ? cu().cuMemFreeAsync(address, stream) : taken;
    REQUIRE(cu().cuCtxPushCurrent(device.context) == CUDA_SUCCESS);
    CHECK(taken == CUDA_SUCCESS);
    CHECK(freed == CUDA_SUCCESS);
}

TEST_CASE("a captured allocation has its address at once and belongs to the graph") {
    const Device device;
    const Stream stream;
    const Block result(4096);
    CUdeviceptr address = 0;
    begin(stream);
    REQUIRE(cu().cuMemAllocAsync(&address, 4096, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemsetD8Async(address, 6, 4096, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemcpyDtoDAsync(result, address, 4096, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
    const CUgraph graph = end(stream);
    const CUgraphExec executable = instantiate(graph);
    REQUIRE(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(byte_at(result) == 6);
    REQUIRE(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
}

namespace {

// A graph that allocates 4096 bytes, and leaves them to the program that launches it.
struct Leaving {
    explicit Leaving(CUstream stream, unsigned flags = 0) {
        begin(stream);
        REQUIRE(cu().cuMemAllocAsync(&address, 4096, stream) == CUDA_SUCCESS);
        REQUIRE(cu().cuMemsetD8Async(address, 7, 4096, stream) == CUDA_SUCCESS);
        const CUgraph graph = ::end(stream);
        executable = instantiate(graph, flags);
        REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
    }
    void end() { REQUIRE(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS); }

    CUdeviceptr address = 0;
    CUgraphExec executable = nullptr;
};

CUgraphExec freeing(CUdeviceptr address, CUstream stream) {
    begin(stream);
    REQUIRE(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
    const CUgraph graph = end(stream);
    const CUgraphExec executable = instantiate(graph);
    REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
    return executable;
}

} // namespace

TEST_CASE("a graph is not launched again before what it left has been freed") {
    const Device device;
    const Stream stream;
    Leaving leaving(stream);
    REQUIRE(cu().cuGraphLaunch(leaving.executable, stream) == CUDA_SUCCESS);
    CHECK(cu().cuGraphLaunch(leaving.executable, stream) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemFreeAsync(leaving.address, stream) == CUDA_SUCCESS);
    CHECK(cu().cuGraphLaunch(leaving.executable, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(cu().cuMemFree(leaving.address) == CUDA_SUCCESS);
    leaving.end();
}

TEST_CASE("a graph that frees at its launch is launched again while the program has its memory") {
    const Device device;
    const Stream stream;
    Leaving leaving(stream, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    CHECK(cu().cuGraphLaunch(leaving.executable, stream) == CUDA_SUCCESS);
    CHECK(cu().cuGraphLaunch(leaving.executable, stream) == CUDA_SUCCESS);
    leaving.end();
    CHECK(cu().cuMemFreeAsync(leaving.address, stream) == CUDA_SUCCESS);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

TEST_CASE("memory that a launch left stays the program's after the graph's end") {
    const Device device;
    const Stream stream;
    Leaving leaving(stream);
    REQUIRE(cu().cuGraphLaunch(leaving.executable, stream) == CUDA_SUCCESS);
    leaving.end();
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    const Block other(4096);
    CHECK(other != leaving.address);
    CHECK(byte_at(leaving.address) == 7);
    CHECK(cu().cuMemFreeAsync(leaving.address, stream) == CUDA_SUCCESS);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

TEST_CASE("a launch of another graph frees what a graph left") {
    const Device device;
    const Stream stream;
    Leaving leaving(stream);
    const CUgraphExec free = freeing(leaving.address, stream);
    for (int i = 0; i < 2; i++) {
        REQUIRE(cu().cuGraphLaunch(leaving.executable, stream) == CUDA_SUCCESS);
        CHECK(cu().cuGraphLaunch(leaving.executable, stream) == CUDA_ERROR_INVALID_VALUE);
        REQUIRE(cu().cuGraphLaunch(free, stream) == CUDA_SUCCESS);
    }
    leaving.end();
    CHECK(cu().cuGraphExecDestroy(free) == CUDA_SUCCESS);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

TEST_CASE("a graph that frees another one's memory is launched only while the program has that") {
    const Device device;
    const Stream stream;
    Leaving leaving(stream);
    const CUgraphExec free = freeing(leaving.address, stream);
    CHECK(cu().cuGraphLaunch(free, stream) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cu().cuGraphLaunch(leaving.executable, stream) == CUDA_SUCCESS);
    CHECK(cu().cuGraphLaunch(free, stream) == CUDA_SUCCESS);
    CHECK(cu().cuGraphLaunch(free, stream) == CUDA_ERROR_INVALID_VALUE);
    leaving.end();
    CHECK(cu().cuGraphExecDestroy(free) == CUDA_SUCCESS);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

TEST_CASE("an update gives a graph's memory to the launches of another executable graph") {
    const Device device;
    const Stream stream;
    CUgraph graph = nullptr, frees_inside[2] = {};
    CUgraphExec second = nullptr;
    CUdeviceptr address = 0, inside = 0;
    CUgraphExecUpdateResultInfo info = {};
    Leaving leaving(stream);
    REQUIRE(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemAllocAsync(&address, 4096, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemsetD8Async(address, 8, 4096, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphLaunch(leaving.executable, stream) == CUDA_SUCCESS);
    CHECK(cu().cuGraphExecUpdate(leaving.executable, graph, &info) == CUDA_SUCCESS);
    CHECK(cu().cuGraphInstantiate(&second, graph, 0) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHECK(cu().cuGraphLaunch(leaving.executable, stream) == CUDA_SUCCESS);
    CHECK(cu().cuGraphLaunch(leaving.executable, stream) == CUDA_ERROR_INVALID_VALUE);
    leaving.end();
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(byte_at(leaving.address) == 7);
    CHECK(byte_at(address) == 8);
    CHECK(cu().cuMemFreeAsync(leaving.address, stream) == CUDA_SUCCESS);
    CHECK(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);

    for (CUgraph &each : frees_inside) {
        REQUIRE(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
        REQUIRE(cu().cuMemAllocAsync(&inside, 4096, stream) == CUDA_SUCCESS);
        REQUIRE(cu().cuMemsetD8Async(inside, 9, 4096, stream) == CUDA_SUCCESS);
        REQUIRE(cu().cuMemFreeAsync(inside, stream) == CUDA_SUCCESS);
        REQUIRE(cu().cuStreamEndCapture(stream, &each) == CUDA_SUCCESS);
    }
    REQUIRE(cu().cuGraphInstantiate(&second, frees_inside[0], 0) == CUDA_SUCCESS);
    CHECK(cu().cuGraphExecUpdate(second, frees_inside[0], &info) == CUDA_SUCCESS);
    CHECK(cu().cuGraphExecUpdate(second, frees_inside[1], &info) ==
          CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR);
    CHECK(info.errorNode != nullptr);
    CHECK(cu().cuGraphDestroy(frees_inside[0]) == CUDA_SUCCESS);
    CHECK(cu().cuGraphDestroy(frees_inside[1]) == CUDA_SUCCESS);
    CHECK(cu().cuGraphExecDestroy(second) == CUDA_SUCCESS);
}

TEST_CASE("a graph that allocates has one executable graph, no clone, and is part of no other") {
    const Device device;
    const Stream stream;
    CUdeviceptr address = 0;
    CUgraph graph = nullptr, clone = nullptr;
    CUgraphExec executable = nullptr, second = nullptr;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    REQUIRE(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemAllocAsync(&address, 4096, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphInstantiate(&executable, graph, 0) == CUDA_SUCCESS);
    CHECK(cu().cuGraphInstantiate(&second, graph, 0) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cu().cuGraphClone(&clone, graph) == CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    CHECK(cu().cuGraphLaunch(executable, stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(cu().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK(cu().cuStreamEndCapture(stream, &clone) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHECK(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
}

TEST_CASE("cuMemFreeAsync takes memory of cuMemAlloc") {
    const Device device;
    const Stream stream;
    CUdeviceptr address = 0;
    REQUIRE(cu().cuMemAlloc(&address, 1 << 20) == CUDA_SUCCESS);
    CHECK(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

namespace {

CUmemoryPool pool_of(CUdeviceptr address) {
    CUmemoryPool pool = nullptr;
    REQUIRE(cu().cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address) ==
            CUDA_SUCCESS);
    return pool;
}

CUmemoryPool current_pool() {
    CUmemoryPool pool = nullptr;
    REQUIRE(cu().cuDeviceGetMemPool(&pool, 0) == CUDA_SUCCESS);
    return pool;
}

} // namespace

TEST_CASE("a device takes memory from the pool that was set, and from its own after that one") {
    const Device device;
    const Stream stream;
    CUmemoryPool own = nullptr;
    CUdeviceptr address = 0;
    REQUIRE(cu().cuDeviceGetDefaultMemPool(&own, 0) == CUDA_SUCCESS);
    CHECK(current_pool() == own);
    {
        const Pool pool;
        REQUIRE(cu().cuDeviceSetMemPool(0, pool.handle) == CUDA_SUCCESS);
        CHECK(current_pool() == pool.handle);
        REQUIRE(cu().cuMemAllocAsync(&address, 4096, stream) == CUDA_SUCCESS);
        CHECK(pool_of(address) == pool.handle);
        REQUIRE(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
        REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    }
    CHECK(current_pool() == own);
    REQUIRE(cu().cuMemAllocAsync(&address, 4096, stream) == CUDA_SUCCESS);
    CHECK(pool_of(address) == own);
    REQUIRE(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
}

TEST_CASE("a device's pools can be asked for by its location") {
    using GetPool = CUresult (*)(CUmemoryPool *, CUmemLocation *, CUmemAllocationType);
    using SetPool = CUresult (*)(CUmemLocation *, CUmemAllocationType, CUmemoryPool);
    const auto get_default = cu().optional<GetPool>("cuMemGetDefaultMemPool", 13000);
    const auto get = cu().optional<GetPool>("cuMemGetMemPool", 13000);
    const auto set = cu().optional<SetPool>("cuMemSetMemPool", 13000);
    if (!get_default || !get || !set) {
        WARN("skipped: this driver has no cuMemGetMemPool");
        return;
    }
    const Device device;
    const Pool pool;
    CUmemLocation location = {};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool own = nullptr, found = nullptr;
    REQUIRE(cu().cuDeviceGetDefaultMemPool(&own, 0) == CUDA_SUCCESS);
    CHECK(get_default(&found, &location, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS);
    CHECK(found == own);
    CHECK(set(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool.handle) == CUDA_SUCCESS);
    CHECK(get(&found, &location, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS);
    CHECK(found == pool.handle);
    CHECK(current_pool() == pool.handle);
}
