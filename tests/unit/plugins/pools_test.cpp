// Behaviour: pools with names (emm_context_named), as a program sees them on a plugin.
#include "gpu.h"

namespace {

constexpr size_t mib = 1 << 20;

emm_status free(emm_context *pool, emm_deviceptr ptr, size_t size) {
    return emm_memfree(pool, ptr, size, EMM_STREAM_UNORDERED);
}

size_t free_bytes() {
    size_t free = 0, total = 0;
    REQUIRE(CU(cuMemGetInfo)(&free, &total) == CUDA_SUCCESS);
    return free;
}

} // namespace

TEST_CASE("a pool's memory, statistics, handles and resets are its own") {
    const Gpu gpu;
    emm_context *const pool = context_named(gpu.emm(), "kv-cache"), *const other = context_named(
                                                                        gpu.emm(), "weights");
    const emm_deviceptr in_pool = allocate_in(pool, mib), in_other = allocate_in(other, 3 * mib);
    const emm_deviceptr own = gpu.allocate(mib);
    CHECK(stats_of(pool).live_bytes == mib);
    CHECK(stats_of(other).live_bytes == 3 * mib);
    CHECK(gpu.stats().live_bytes == mib);
    CHECK(free(other, in_pool, mib) == EMM_E_NOT_OWNED);
    emm_memory *memory = nullptr, *kept = nullptr;
    REQUIRE(emm_memory_alloc(pool, mib, EMM_STREAM_LEGACY, &memory) == EMM_OK);
    REQUIRE(emm_memory_alloc(other, mib, EMM_STREAM_LEGACY, &kept) == EMM_OK);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    REQUIRE(emm_context_reset(pool) == EMM_OK);
    emm_memory_info info = info_of(memory);
    CHECK(info.state == EMM_MEMORY_INERT);
    CHECK(info.context == pool);
    REQUIRE(emm_memory_get_info(kept, &info) == EMM_OK);
    CHECK(info.state == EMM_MEMORY_LIVE);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(emm_memory_release(kept) == EMM_OK);
    CHECK(stats_of(pool).live_bytes == 0);
    CHECK(free(other, in_other, 3 * mib) == EMM_OK);
    CHECK(gpu.free(own, mib) == EMM_OK);
}

TEST_CASE(
    "resetting the CUDA context drops the memory of all its pools, retiring it gives it back") {
    const Gpu gpu;
    const uint64_t before = device_bytes();
    emm_context *const pool = context_named(gpu.emm(), "kv-cache");
    const emm_deviceptr ptr = allocate_in(pool, 8 * mib);
    REQUIRE(emm_context_reset(gpu.emm()) == EMM_OK);
    CHECK(free(pool, ptr, 8 * mib) == EMM_E_NOT_OWNED);
    allocate_in(pool, 8 * mib); // stays
    REQUIRE(emm_context_retire(gpu.emm()) == EMM_OK);
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(pool, mib, EMM_STREAM_UNORDERED, &none) == EMM_E_RETIRED);
    CHECK(device_bytes() <= before);
}

TEST_CASE("the pools of a CUDA context that dies are given up with it") {
    Gpu gpu;
    emm_context *const pool = context_named(gpu.emm(), "kv-cache");
    const emm_deviceptr ptr = allocate_in(pool, 8 * mib);
    gpu.kill();
    const Gpu next; // its addresses may be those of the dead context
    const emm_deviceptr live = next.allocate(8 * mib);
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(pool, mib, EMM_STREAM_UNORDERED, &none) == EMM_E_RETIRED);
    CHECK(free(pool, ptr, 8 * mib) == EMM_OK); // late
    CHECK(next.free(live, 8 * mib) == EMM_OK);
}

TEST_CASE("idle memory of one pool serves another before a request fails", "[sim]") {
    const Gpu gpu;
    emm_context *const pool = context_named(gpu.emm(), "kv-cache"), *const other = context_named(
                                                                        gpu.emm(), "weights");
    const size_t most = free_bytes() / 8 * 7 / mib * mib;
    CHECK(free(pool, allocate_in(pool, most), most) == EMM_OK);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    CHECK(free(other, allocate_in(other, most), most) == EMM_OK);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    CHECK(gpu.free(gpu.allocate(most), most) == EMM_OK);
    CHECK(stats_of(pool).failures <= 1);
    REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
}

TEST_CASE("a pool's limit is its own, and leaves its siblings alone") {
    const Gpu gpu;
    emm_context *small = nullptr;
    if (plugin_name() == "passthrough") { // passthrough has no limit
        CHECK(emm_context_named(gpu.emm(), "small", "max=64MiB", &small) == EMM_E_PLUGIN_SPEC);
        return;
    }
    small = context_named(gpu.emm(), "small", "max=64MiB");
    emm_context *const wide = context_named(gpu.emm(), "wide");
    const emm_deviceptr ptr = allocate_in(wide, 256 * mib);
    CHECK(free(wide, ptr, 256 * mib) == EMM_OK);
    const uint64_t cached = stats_of(wide).cached_bytes;
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(small, 128 * mib, EMM_STREAM_UNORDERED, &none) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("pool small"));
    if (plugin_name() == "pool") {
        CHECK(stats_of(wide).cached_bytes == cached); // the driver was not short
    }
    CHECK(free(small, allocate_in(small, 32 * mib), 32 * mib) == EMM_OK);
    size_t free = 0, total = 0;
    CHECK(emm_get_memory_info(small, &free, &total) == EMM_OK);
    CHECK(total == 64 * mib);
}
