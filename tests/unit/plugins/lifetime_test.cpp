// Behaviour: memory when a context is reset, retired or dies, and inside deferred sections.
#include "gpu.h"

#include <fstream>
#include <malloc.h>
#include <unistd.h>

TEST_CASE("reset drops everything, refuses old addresses, and serves on") {
    const Gpu gpu;
    const uint64_t before = device_bytes();
    const emm_deviceptr live = gpu.allocate(1 << 20), freed = gpu.allocate(1 << 20);
    CHECK(gpu.free(freed, 1 << 20) == EMM_OK);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    REQUIRE(emm_context_reset(gpu.emm()) == EMM_OK);
    CHECK(gpu.stats().live_bytes == 0);
    CHECK(gpu.free(live, 1 << 20) == EMM_E_NOT_OWNED);
    REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK(device_bytes() == before);
    CHECK(emm_context_reset(gpu.emm()) == EMM_OK);
    CHECK(gpu.free(gpu.allocate(4096), 4096) == EMM_OK);
}

TEST_CASE("sections and streams go on over a reset") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    REQUIRE(emm_stream_register(gpu.emm(), stream) == EMM_OK);
    REQUIRE(emm_defer_cleanup_begin(gpu.emm()) == EMM_OK);
    REQUIRE(emm_context_reset(gpu.emm()) == EMM_OK);
    for (int i = 0; i < 10; i++) {
        CHECK(gpu.free(gpu.allocate(2 << 20, stream), 2 << 20, stream) == EMM_OK);
    }
    synchronize(stream);
    const uint64_t held = device_bytes();
    REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK(device_bytes() == held);
    CHECK(emm_defer_cleanup_end(gpu.emm()) == EMM_OK);
    CHECK(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK(emm_stream_retire(gpu.emm(), stream) == EMM_OK);
    CHECK(CU(cuStreamDestroy)(stream) == CUDA_SUCCESS);
}

TEST_CASE("a trim runs the pending frees, while a capture is announced too") {
    const Gpu gpu;
    const auto pending = [] { return counters().pending_count; };
    const auto free_some = [&] {
        for (int i = 0; i < 5; i++) { // fewer than a limit
            CHECK(gpu.free(gpu.allocate(4 << 20), 4 << 20) == EMM_OK);
        }
    };
    const uint64_t idle = device_bytes();
    free_some();
    CHECK(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK(pending() == 0);
    if (plugin_name() == "passthrough") { // passthrough caches nothing
        CHECK(device_bytes() <= idle);
    }
    REQUIRE(emm_capture_begin(gpu.emm(), nullptr) == EMM_OK);
    free_some();
    CHECK(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK(pending() == 0);
    CHECK(emm_capture_end(gpu.emm(), nullptr) == EMM_OK);
}

TEST_CASE("reset works with no current context") {
    const Gpu gpu;
    gpu.allocate(4096);
    CUcontext popped = nullptr;
    REQUIRE(CU(cuCtxPopCurrent)(&popped) == CUDA_SUCCESS);
    CHECK(emm_context_reset(gpu.emm()) == EMM_OK);
    REQUIRE(CU(cuCtxPushCurrent)(popped) == CUDA_SUCCESS);
    CHECK(gpu.stats().live_count == 0);
}

TEST_CASE("retiring gives everything back, what is live and what is pending") {
    const Gpu gpu;
    const uint64_t before = device_bytes();
    gpu.allocate(3 << 20);
    CHECK(gpu.free(gpu.allocate(1 << 20), 1 << 20) == EMM_OK);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    CHECK(emm_context_retire(gpu.emm()) == EMM_OK);
    CHECK(device_bytes() <= before);
}

TEST_CASE("a context that died with memory pending and live is retired without harm") {
    Gpu gpu;
    gpu.allocate(1 << 20);
    CHECK(gpu.free(gpu.allocate(1 << 20), 1 << 20) == EMM_OK);
    gpu.kill();
    const Gpu next; // perhaps with the same handle and the same addresses
    const emm_deviceptr theirs = next.allocate(1 << 20);
    fill(theirs, 1 << 20, 5, nullptr);
    CHECK(emm_context_retire(gpu.emm()) == EMM_OK);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    CHECK(last_word(theirs, 1 << 20) == 5);
    CHECK(next.free(theirs, 1 << 20) == EMM_OK);
}

// A GPU's driver crashes on a second query once the handle's memory has another use.
TEST_CASE("the driver is asked once whether a context has died that ends", "[sim]") {
    const Gpu other;
    CHECK(other.free(other.allocate(1 << 20), 1 << 20) == EMM_OK);
    Gpu gpu;
    CUstream stream = gpu.make_stream(CU_STREAM_NON_BLOCKING);
    gpu.allocate(1 << 20);
    gpu.allocate(1 << 20, reinterpret_cast<emm_stream>(stream));
    CHECK(gpu.free(gpu.allocate(1 << 20), 1 << 20) == EMM_OK);
    gpu.kill();
    const uint64_t before = calls_of("cuCtxGetId");
    CHECK(emm_context_retire(gpu.emm()) == EMM_OK);
    INFO(plugin_name());
    CHECK(calls_of("cuCtxGetId") == before + 1);
}

TEST_CASE("no memory of a context that died is given out once the next one is served") {
    Gpu gpu;
    const emm_deviceptr live = gpu.allocate(4096);
    for (int i = 0; i < 8; i++) { // blocks that come back without a question to the driver
        CHECK(gpu.free(gpu.allocate(4096), 4096) == EMM_OK);
        CHECK(gpu.free(gpu.allocate(1 << 20), 1 << 20) == EMM_OK);
    }
    gpu.kill();
    const Gpu next; // perhaps with the same handle and the same addresses
    for (const size_t size : {size_t(4096), size_t(1) << 20}) {
        const emm_deviceptr theirs = next.allocate(size);
        emm_deviceptr stale = 0;
        fill(theirs, size, 5, nullptr);
        CHECK(emm_memalloc(gpu.emm(), size, EMM_STREAM_UNORDERED, &stale) == EMM_E_RETIRED);
        CHECK(stale == 0);
        CHECK(gpu.free(live, 4096) == EMM_OK);
        REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
        CHECK(last_word(theirs, size) == 5);
        CHECK(next.free(theirs, size) == EMM_OK);
    }
}

TEST_CASE("what a context that died has kept comes back when the next one is served") {
    const Gpu first;
    uint64_t before = 0;
    {
        Gpu gpu;
        before = device_bytes(); // with two contexts, as at the end: a GPU keeps memory for each
        gpu.allocate(8 << 20);
        CHECK(gpu.free(gpu.allocate(8 << 20), 8 << 20) == EMM_OK);
        gpu.kill();
    }
    REQUIRE(CU(cuCtxSetCurrent)(first.cuda()) == CUDA_SUCCESS);
    const Gpu next;
    CHECK(next.stats().live_bytes == 0);
    CHECK(device_bytes() <= before);
}

TEST_CASE("what another context of the device has freed makes room") {
    const Gpu first, second;
    size_t free = 0, total = 0;
    REQUIRE(CU(cuMemGetInfo)(&free, &total) == CUDA_SUCCESS);
    const size_t less = free / 100 * 15, more = free / 100 * 90; // both together are too much
    for (const emm_stream stream : {EMM_STREAM_UNORDERED, EMM_STREAM_LEGACY}) {
        CHECK(first.free(first.allocate(less, stream), less, stream) == EMM_OK);
        REQUIRE(CU(cuCtxSetCurrent)(first.cuda()) == CUDA_SUCCESS);
        REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
        REQUIRE(CU(cuCtxSetCurrent)(second.cuda()) == CUDA_SUCCESS);
        emm_deviceptr ptr = 0; // a driver may tell only the second time that a free is complete
        emm_status status = emm_memalloc(second.emm(), more, stream, &ptr);
        status = status == EMM_OK ? status : emm_memalloc(second.emm(), more, stream, &ptr);
        CHECK(status == EMM_OK);
        CHECK(second.free(ptr, more, stream) == EMM_OK);
        REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
        REQUIRE(emm_trim(second.emm(), 0, nullptr) == EMM_OK);
    }
}

// The contexts leave nothing of the simulated driver's memory either.
TEST_CASE("a context that died unretired leaves next to no host memory", "[sim]") {
    constexpr size_t contexts = 100,
                     record = 4096; // bytes: the permanent record that it has died
    const auto used = [] {
        std::ifstream file("/proc/self/statm");
        size_t all = 0, resident = 0, shared = 0, text = 0, libraries = 0, data = 0;
        file >> all >> resident >> shared >> text >> libraries >> data;
        return data * size_t(sysconf(_SC_PAGESIZE)); // with what is mapped and not touched
    };
    const auto live_and_die = [] {
        Gpu gpu;
        const CUstream stream = gpu.make_stream();
        for (const size_t size : {100, 1 << 20, 8 << 20}) {
            CHECK(gpu.free(gpu.allocate(size, stream), size, stream) == EMM_OK);
            CHECK(gpu.free(gpu.allocate(size), size) == EMM_OK);
        }
        CHECK(CU(cuStreamDestroy)(stream) == CUDA_SUCCESS);
        gpu.abandon();
    };
    for (size_t i = 0; i < contexts; i++) {
        live_and_die();
    }
    const size_t before = used(), heap_before = mallinfo2().uordblks;
    for (size_t i = 0; i < contexts; i++) {
        live_and_die();
    }
    CHECK(mallinfo2().uordblks <= heap_before + contexts * record);
    if (heap_before != 0) { // the C library's own heap, not a tool's that keeps what was freed
        CHECK(used() <= before + contexts * record);
    }
}

TEST_CASE("in a deferred section nothing goes back to the driver") {
    const Gpu gpu;
    REQUIRE(emm_defer_cleanup_begin(gpu.emm()) == EMM_OK);
    for (int i = 0; i < 30; i++) {
        CHECK(gpu.free(gpu.allocate(2 << 20), 2 << 20) == EMM_OK);
    }
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    const uint64_t held = device_bytes();
    size_t released = 1;
    CHECK(emm_trim(gpu.emm(), 0, &released) == EMM_OK);
    CHECK(released == 0);
    CHECK(device_bytes() == held);
    CHECK(emm_defer_cleanup_end(gpu.emm()) == EMM_OK);
    CHECK(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK(device_bytes() < held);
}

TEST_CASE("a section and a capture end although the context cannot be made current", "[sim]") {
    const Gpu gpu;
    const uint64_t before = device_bytes();
    const bool section = GENERATE(true, false);
    const auto begin = section ? &emm_defer_cleanup_begin
                               : [](emm_context *context) { return emm_capture_begin(context, 0); };
    const auto end = section ? &emm_defer_cleanup_end
                             : [](emm_context *context) { return emm_capture_end(context, 0); };
    REQUIRE(begin(gpu.emm()) == EMM_OK);
    CHECK(gpu.free(gpu.allocate(2 << 20), 2 << 20) == EMM_OK);
    fail_next("cuCtxPushCurrent@1");
    fail_next("cuCtxPushCurrent@2");
    CHECK(end(gpu.emm()) == EMM_OK);
    fail_next(nullptr);
    CHECK(end(gpu.emm()) == EMM_E_INVALID_VALUE);
    for (int i = 0; i < 2; i++) { // the first may find the free still under way
        CHECK(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
        REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    }
    CHECK(device_bytes() == before);
}

TEST_CASE("a free that the driver is too late for is a success", "[sim]") {
    const Gpu gpu;
    const emm_deviceptr ptr = gpu.allocate(4096);
    const uint64_t before = counters().failed_deferred;
    fail_next(plugin_name() == "async" ? "cuMemFreeAsync@1:4" : "cuMemFree@1:4");
    CHECK(gpu.free(ptr, 4096) == EMM_OK);
    CHECK(emm_context_reset(gpu.emm()) == EMM_OK);
    fail_next(nullptr);
    CHECK(counters().failed_deferred == before);
}
