// async alone: the driver's pool behind it.
#include "gpu.h"

TEST_CASE("freed memory is kept, and trim gives it back down to what is to be kept") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr live = gpu.allocate(1 << 20, stream);
    CHECK(gpu.free(gpu.allocate(256 << 20, stream), 256 << 20, stream) == EMM_OK);
    synchronize(stream);
    const emm_stats full = gpu.stats();
    CHECK(full.cached_bytes >= size_t(256) << 20);
    CHECK(full.reserved_bytes >= full.cached_bytes + (1 << 20));
    size_t released = 0;
    REQUIRE(emm_trim(gpu.emm(), SIZE_MAX, &released) == EMM_OK);
    CHECK(released == 0);
    REQUIRE(emm_trim(gpu.emm(), 0, &released) == EMM_OK);
    CHECK(released >= size_t(256) << 20);
    CHECK(gpu.stats().reserved_bytes == full.reserved_bytes - released);
    CHECK(gpu.stats().peak_reserved_bytes == full.reserved_bytes);
    CHECK(gpu.free(live, 1 << 20, stream) == EMM_OK);
}

TEST_CASE("a trim gives back memory whose free a capture has postponed") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(256 << 20, stream);
    REQUIRE(emm_capture_begin(gpu.emm(), stream) == EMM_OK);
    CHECK(gpu.free(ptr, 256 << 20) == EMM_OK);
    REQUIRE(emm_capture_end(gpu.emm(), stream) == EMM_OK);
    size_t released = 0;
    REQUIRE(emm_trim(gpu.emm(), 0, &released) == EMM_OK);
    CHECK(released >= size_t(256) << 20);
}

TEST_CASE(
    "memory beyond release_threshold goes back as a stream is waited for, but not in a section",
    "[.threshold]") { // async:release_threshold=64MiB
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    CHECK(gpu.free(gpu.allocate(256 << 20, stream), 256 << 20, stream) == EMM_OK);
    synchronize(stream);
    CHECK(gpu.stats().reserved_bytes <= size_t(64) << 20);
    REQUIRE(emm_defer_cleanup_begin(gpu.emm()) == EMM_OK);
    CHECK(gpu.free(gpu.allocate(256 << 20, stream), 256 << 20, stream) == EMM_OK);
    synchronize(stream);
    CHECK(gpu.stats().reserved_bytes >= size_t(256) << 20);
    REQUIRE(emm_defer_cleanup_end(gpu.emm()) == EMM_OK);
    CHECK(gpu.free(gpu.allocate(4096, stream), 4096, stream) == EMM_OK);
    synchronize(stream);
    CHECK(gpu.stats().reserved_bytes <= size_t(64) << 20);
}

TEST_CASE("memory beyond release_threshold goes back after a section whose end has failed",
          "[.threshold]") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    REQUIRE(emm_defer_cleanup_begin(gpu.emm()) == EMM_OK);
    fail_next("cuMemPoolSetAttribute@1:999");
    CHECK(emm_defer_cleanup_end(gpu.emm()) == EMM_E_DRIVER);
    fail_next(nullptr);
    CHECK(gpu.free(gpu.allocate(256 << 20, stream), 256 << 20, stream) == EMM_OK);
    synchronize(stream);
    CHECK(gpu.stats().reserved_bytes <= size_t(64) << 20);
}

TEST_CASE("a request for more than the device has leaves the cache alone") {
    const Gpu gpu;
    CHECK(gpu.free(gpu.allocate(256 << 20), 256 << 20) == EMM_OK);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    const uint64_t held = gpu.stats().reserved_bytes;
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(gpu.emm(), size_t(1) << 50, EMM_STREAM_LEGACY, &none) ==
          EMM_E_OUT_OF_MEMORY);
    CHECK(emm_last_error()->driver_result == 0);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("device has"));
    CHECK(gpu.stats().reserved_bytes == held);
}

TEST_CASE("cached memory counts as free") {
    const Gpu gpu;
    size_t before = 0, after = 0, total = 0;
    REQUIRE(emm_get_memory_info(gpu.emm(), &before, &total) == EMM_OK);
    CHECK(gpu.free(gpu.allocate(512 << 20), 512 << 20) == EMM_OK);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    REQUIRE(emm_get_memory_info(gpu.emm(), &after, &total) == EMM_OK);
    CHECK(after == before);
}

TEST_CASE("an unordered free of memory in use does not wait", "[sim]") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(1 << 20, stream);
    fill(ptr, 1 << 20, 1, stream);
    const uint64_t waits = calls_of("cuStreamSynchronize") + calls_of("cuCtxSynchronize");
    const uint64_t frees = calls_of("cuMemFree");
    CHECK(gpu.free(ptr, 1 << 20) == EMM_OK);
    CHECK(calls_of("cuStreamSynchronize") + calls_of("cuCtxSynchronize") == waits);
    CHECK(calls_of("cuMemFree") == frees);
    CHECK(calls_of("cuCtxRecordEvent") > 0);
}

TEST_CASE("an unordered free that meets an unannounced capture is kept for later", "[sim]") {
    const Gpu gpu;
    const emm_deviceptr ptr = gpu.allocate(1 << 20);
    fail_next("cuCtxRecordEvent@1:900");
    CHECK(gpu.free(ptr, 1 << 20) == EMM_OK);
    fail_next(nullptr);
    CHECK(gpu.stats().pending_bytes == size_t(1) << 20);
    CHECK(gpu.free(gpu.allocate(4096), 4096) == EMM_OK);
    CHECK(gpu.stats().pending_bytes == 0);
}

TEST_CASE("an unordered request whose wait fails keeps no memory", "[sim]") {
    const Gpu gpu;
    const uint64_t before = device_bytes();
    emm_deviceptr none = 0;
    fail_next("cuStreamSynchronize@1:999");
    CHECK(emm_memalloc(gpu.emm(), 1 << 20, EMM_STREAM_UNORDERED, &none) == EMM_E_DRIVER);
    fail_next(nullptr);
    CHECK(device_bytes() == before);
    CHECK(gpu.stats().reserved_bytes == 0);
}

TEST_CASE("a free that the driver refuses leaves the memory the caller's", "[sim]") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(4096, stream);
    fail_next("cuMemFreeAsync@1:999");
    CHECK(gpu.free(ptr, 4096, stream) == EMM_E_DRIVER);
    fail_next(nullptr);
    CHECK(gpu.stats().live_count == 1);
    CHECK(gpu.free(ptr, 4096, stream) == EMM_OK);
}

TEST_CASE("a section whose beginning fails does not go on", "[sim]") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    fail_next("cuMemPoolSetAttribute@1:999");
    CHECK(emm_defer_cleanup_begin(gpu.emm()) == EMM_E_DRIVER);
    fail_next(nullptr);
    CHECK(emm_defer_cleanup_end(gpu.emm()) == EMM_E_INVALID_VALUE);
    CHECK(gpu.free(gpu.allocate(64 << 20, stream), 64 << 20, stream) == EMM_OK);
    synchronize(stream);
    REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK(gpu.stats().reserved_bytes == 0);
}

TEST_CASE("exported memory that is freed is not given out until its export ends", "[.ipc]") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(4 << 20, stream);
    emm_ipc_handle whole = {}, part = {}, none = {};
    REQUIRE(emm_get_ipc_handle(gpu.emm(), ptr, 4 << 20, &whole) == EMM_OK);
    REQUIRE(emm_get_ipc_handle(gpu.emm(), ptr + 512, 1 << 20, &part) == EMM_OK);
    CHECK(emm_get_ipc_handle(gpu.emm(), ptr + 512, 4 << 20, &none) == EMM_E_INVALID_VALUE);
    CHECK(whole.kind == EMM_IPC_POOL);
    CHECK(part.offset == 512);
    CHECK(gpu.free(ptr, 4 << 20, stream) == EMM_OK);
    CHECK(gpu.free(ptr, 4 << 20, stream) == EMM_E_NOT_OWNED);
    CHECK(emm_get_ipc_handle(gpu.emm(), ptr, 1, &none) == EMM_E_NOT_OWNED);
    CHECK(emm_release_ipc_handle(gpu.emm(), &whole) == EMM_OK);
    const emm_deviceptr other = gpu.allocate(4 << 20, stream);
    CHECK(other != ptr);
    CHECK(gpu.stats().pending_bytes == 4 << 20);
    CHECK(emm_release_ipc_handle(gpu.emm(), &part) == EMM_OK);
    CHECK(emm_release_ipc_handle(gpu.emm(), &part) == EMM_E_NOT_OWNED);
    CHECK(gpu.free(other, 4 << 20) == EMM_OK);
    CHECK(gpu.stats().pending_bytes == 0);
}

TEST_CASE("a reset drops exported memory, and its exports", "[.ipc]") {
    const Gpu gpu;
    const emm_deviceptr kept = gpu.allocate(4 << 20), freed = gpu.allocate(4 << 20);
    emm_ipc_handle first = {}, second = {};
    REQUIRE(emm_get_ipc_handle(gpu.emm(), kept, 4 << 20, &first) == EMM_OK);
    REQUIRE(emm_get_ipc_handle(gpu.emm(), freed, 4 << 20, &second) == EMM_OK);
    CHECK(gpu.free(freed, 4 << 20) == EMM_OK);
    REQUIRE(emm_context_reset(gpu.emm()) == EMM_OK);
    CHECK(emm_release_ipc_handle(gpu.emm(), &first) == EMM_E_NOT_OWNED);
    CHECK(emm_release_ipc_handle(gpu.emm(), &second) == EMM_E_NOT_OWNED);
    CHECK(gpu.stats().live_bytes + gpu.stats().pending_bytes == 0);
}

TEST_CASE("a pool that was not made to be shared exports nothing, and says what would") {
    const Gpu gpu;
    const emm_deviceptr ptr = gpu.allocate(4 << 20);
    emm_ipc_handle none = {};
    CHECK(emm_get_ipc_handle(gpu.emm(), ptr, 4 << 20, &none) == EMM_E_NOT_SUPPORTED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("async:ipc=1"));
    CHECK(gpu.free(ptr, 4 << 20) == EMM_OK);
}
