// passthrough alone: the queue of pending deallocations is its only layer before the driver.
#include "gpu.h"

TEST_CASE("frees wait in the queue until more than ten are pending", "[sim]") {
    const Gpu gpu;
    const uint64_t calls = calls_of("cuMemFree");
    for (int i = 0; i < 10; i++) {
        CHECK(gpu.free(gpu.allocate(4096), 4096) == EMM_OK);
    }
    CHECK(calls_of("cuMemFree") == calls);
    CHECK(gpu.stats().pending_bytes == 10 * 4096);
    CHECK(gpu.free(gpu.allocate(4096), 4096) == EMM_OK);
    CHECK(calls_of("cuMemFree") == calls + 11);
    CHECK(gpu.stats().pending_bytes == 0);
    CHECK(gpu.stats().reserved_bytes == 0);
}

TEST_CASE("an export is of live memory of the manager's own, or refused") {
    const Gpu gpu;
    const emm_deviceptr live = gpu.allocate(1 << 20), freed = gpu.allocate(1 << 20);
    CUdeviceptr foreign = 0;
    REQUIRE(CU(cuMemAlloc)(&foreign, 1 << 20) == CUDA_SUCCESS);
    CHECK(gpu.free(freed, 1 << 20) == EMM_OK);
    emm_ipc_handle handle = {};
    for (const emm_deviceptr ptr : {freed, foreign, foreign + 512, emm_deviceptr(0xabc000)}) {
        CHECK(emm_get_ipc_handle(gpu.emm(), ptr, 4096, &handle) == EMM_E_NOT_OWNED);
    }
    CHECK(emm_get_ipc_handle(gpu.emm(), live + 4096, 1 << 20, &handle) == EMM_E_INVALID_VALUE);
    CHECK(handle.magic == 0);
    REQUIRE(emm_get_ipc_handle(gpu.emm(), live + 4096, 4096, &handle) == EMM_OK);
    CHECK(handle.size == 4096);
    CHECK(emm_release_ipc_handle(gpu.emm(), &handle) == EMM_OK);
    CHECK(gpu.free(live, 1 << 20) == EMM_OK);
    REQUIRE(CU(cuMemFree)(foreign) == CUDA_SUCCESS);
}

TEST_CASE("running out of memory frees what is pending and tries again") {
    const Gpu gpu;
    size_t free = 0, total = 0;
    REQUIRE(emm_get_memory_info(gpu.emm(), &free, &total) == EMM_OK);
    const size_t part = total / 8;
    CHECK(gpu.free(gpu.allocate(part), part) == EMM_OK);
    const size_t most = free - (4 << 20);
    const emm_deviceptr ptr = gpu.allocate(most);
    CHECK(gpu.stats().pending_bytes == 0);
    CHECK(gpu.free(ptr, most) == EMM_OK);
}

TEST_CASE("pending frees of a context that died never reach the driver", "[sim]") {
    Gpu gpu;
    for (int i = 0; i < 5; i++) {
        CHECK(gpu.free(gpu.allocate(4096), 4096) == EMM_OK);
    }
    gpu.kill();
    const uint64_t calls = calls_of("cuMemFree");
    CHECK(emm_context_retire(gpu.emm()) == EMM_OK);
    CHECK(calls_of("cuMemFree") == calls);
}

TEST_CASE("a pending free that the driver refuses is counted and stops no other", "[sim]") {
    const Gpu gpu;
    const uint64_t before = counters().failed_deferred;
    const uint64_t calls = calls_of("cuMemFree");
    for (int i = 0; i < 3; i++) {
        CHECK(gpu.free(gpu.allocate(4096), 4096) == EMM_OK);
    }
    fail_next("cuMemFree@2:1");
    CHECK(emm_context_reset(gpu.emm()) == EMM_OK);
    fail_next(nullptr);
    CHECK(calls_of("cuMemFree") == calls + 3);
    CHECK(counters().failed_deferred == before + 1);
    CHECK(gpu.stats().pending_bytes == 0);
}
