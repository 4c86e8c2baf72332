// Behaviour: the promises of every bundled plugin for one allocation, its neighbours and its
// streams.
#include "gpu.h"

#include <vector>

TEST_CASE("pinned memory is aligned to 256 bytes, however little is asked for") {
    const Gpu gpu;
    for (const uint32_t flags : {0u, EMM_HOST_MAPPED, EMM_HOST_PORTABLE | EMM_HOST_MAPPED}) {
        for (size_t size = 1; size <= 100'000; size = size * 3 + 1) {
            void *host = nullptr;
            emm_deviceptr device = 0;
            REQUIRE(emm_memhostalloc(gpu.emm(), size, flags, &host, &device) == EMM_OK);
            CHECK(reinterpret_cast<uintptr_t>(host) % 256 == 0);
            CHECK(device % 256 == 0);
        } // kept, so that each has neighbours
    }
}

TEST_CASE("a second free of an address is refused, whether or not the first is done") {
    const Gpu gpu;
    const emm_deviceptr ptr = gpu.allocate(4096);
    CHECK(gpu.free(ptr, 4096) == EMM_OK);
    CHECK(gpu.free(ptr, 4096) == EMM_E_NOT_OWNED);
    CHECK(gpu.stats().frees == 1);
}

TEST_CASE("an address that was never given out is refused and named") {
    const Gpu gpu;
    CHECK(gpu.free(0xabc000, 0) == EMM_E_NOT_OWNED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("0xabc000"));
    const emm_deviceptr ptr = gpu.allocate(4096);
    CHECK(gpu.free(ptr + 256, 0) == EMM_E_NOT_OWNED);
    CHECK(gpu.free(ptr, 0) == EMM_OK);
}

TEST_CASE("a free with another size than was asked for is refused, and the memory stays live") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    for (const emm_stream on : {EMM_STREAM_UNORDERED, EMM_STREAM_LEGACY, emm_stream(stream)}) {
        for (const size_t size : {size_t(300), size_t(5000), size_t(3) << 20}) {
            const emm_deviceptr ptr = gpu.allocate(size, on);
            for (const size_t other : {size - 1, size + 1, size / 2, size * 2, size_t(1)}) {
                CHECK(gpu.free(ptr, other, on) == EMM_E_INVALID_VALUE);
                CHECK_THAT(emm_last_error()->text, ContainsSubstring(std::to_string(other)) &&
                                                       ContainsSubstring(std::to_string(size)));
            }
            CHECK(gpu.stats().live_count == 1);
            CHECK(gpu.free(ptr, size, on) == EMM_OK);
        }
    }
}

TEST_CASE("pinned, registered and managed memory is not freed with another size either") {
    const Gpu gpu;
    void *host = nullptr;
    emm_deviceptr managed = 0;
    std::vector<char> own(40000);
    REQUIRE(emm_memhostalloc(gpu.emm(), 5000, 0, &host, nullptr) == EMM_OK);
    REQUIRE(emm_memallocmanaged(gpu.emm(), 5000, EMM_ATTACH_GLOBAL, &managed) == EMM_OK);
    REQUIRE(emm_mempin(gpu.emm(), own.data(), own.size(), 0, nullptr) == EMM_OK);
    const auto free_as = [&](size_t pinned, size_t registered) {
        return std::vector{emm_memhostfree(gpu.emm(), host, pinned, 0, EMM_STREAM_UNORDERED),
                           emm_memfreemanaged(gpu.emm(), managed, pinned, EMM_STREAM_UNORDERED),
                           emm_memunpin(gpu.emm(), own.data(), registered)};
    };
    const std::vector<emm_status> refused(3, EMM_E_INVALID_VALUE), done(3, EMM_OK);
    CHECK(free_as(4999, 39999) == refused);
    CHECK(free_as(10000, 80000) == refused);
    CHECK(free_as(5000, 40000) == done);
}

TEST_CASE("pinned memory is freed with the flags that it was allocated with, and with no others") {
    const Gpu gpu;
    void *host = nullptr;
    const auto free_with = [&](uint32_t flags) {
        return emm_memhostfree(gpu.emm(), host, 5000, flags, EMM_STREAM_UNORDERED);
    };
    REQUIRE(emm_memhostalloc(gpu.emm(), 5000, EMM_HOST_MAPPED, &host, nullptr) == EMM_OK);
    CHECK(free_with(0) == EMM_E_NOT_OWNED);
    CHECK(free_with(EMM_HOST_MAPPED) == EMM_OK);
}

TEST_CASE("a free with size 0 frees what lies there, of every kind") {
    const Gpu gpu;
    void *host = nullptr;
    emm_deviceptr managed = 0;
    std::vector<char> own(40000);
    for (int round = 0; round < 2; round++) {
        REQUIRE(emm_mempin(gpu.emm(), own.data(), own.size(), 0, nullptr) == EMM_OK);
        CHECK(emm_memunpin(gpu.emm(), own.data(), 0) == EMM_OK);
        CHECK(emm_memunpin(gpu.emm(), own.data(), 0) == EMM_E_NOT_OWNED);
        REQUIRE(emm_memhostalloc(gpu.emm(), 5000, 0, &host, nullptr) == EMM_OK);
        CHECK(emm_memhostfree(gpu.emm(), host, 0, 0, EMM_STREAM_UNORDERED) == EMM_OK);
        CHECK(emm_memhostfree(gpu.emm(), host, 0, 0, EMM_STREAM_UNORDERED) == EMM_E_NOT_OWNED);
        REQUIRE(emm_memallocmanaged(gpu.emm(), 5000, EMM_ATTACH_GLOBAL, &managed) == EMM_OK);
        CHECK(emm_memfreemanaged(gpu.emm(), managed, 0, EMM_STREAM_UNORDERED) == EMM_OK);
        const emm_deviceptr ptr = gpu.allocate(5000);
        CHECK(gpu.free(ptr, 0) == EMM_OK);
        CHECK(gpu.free(ptr, 0) == EMM_E_NOT_OWNED);
    }
}

TEST_CASE("query finds the allocation around an address, and only a live one") {
    const Gpu gpu;
    const emm_deviceptr ptr = gpu.allocate(10000);
    auto info = sized<emm_block_info>();
    REQUIRE(emm_query(gpu.emm(), ptr + 9999, &info) == EMM_OK);
    CHECK(info.base == ptr);
    CHECK(info.size == 10000);
    CHECK(info.kind == EMM_KIND_DEVICE);
    CHECK(info.device == 0);
    CHECK(info.struct_size == sizeof info);
    CHECK(emm_query(gpu.emm(), ptr + 10000, &info) == EMM_E_NOT_OWNED);
    CHECK(emm_query(gpu.emm(), ptr - 1, &info) == EMM_E_NOT_OWNED);
    CHECK(gpu.free(ptr, 10000) == EMM_OK);
    CHECK(emm_query(gpu.emm(), ptr, &info) == EMM_E_NOT_OWNED);
}

TEST_CASE("statistics count what is live, what was asked for and what failed") {
    const Gpu gpu;
    const emm_deviceptr a = gpu.allocate(1000), b = gpu.allocate(3000);
    CHECK(gpu.free(a, 1000) == EMM_OK);
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(gpu.emm(), size_t(1) << 50, EMM_STREAM_UNORDERED, &none) ==
          EMM_E_OUT_OF_MEMORY);
    const emm_stats stats = gpu.stats();
    CHECK(stats.live_bytes == 3000);
    CHECK(stats.live_count == 1);
    CHECK(stats.peak_live_bytes == 4000);
    CHECK(stats.allocations == 2);
    CHECK(stats.frees == 1);
    CHECK(stats.failures >= 1);
    CHECK(stats.reserved_bytes >= 3000);
    CHECK(stats.peak_reserved_bytes >= stats.reserved_bytes);
    CHECK(gpu.free(b, 3000) == EMM_OK);
}

TEST_CASE("peaks begin anew, of one pool alone, and count on from there") {
    const Gpu gpu;
    emm_context *pool = nullptr;
    emm_deviceptr in_pool = 0;
    REQUIRE(emm_context_named(gpu.emm(), "beside", nullptr, &pool) == EMM_OK);
    REQUIRE(emm_memalloc(pool, 3000, EMM_STREAM_UNORDERED, &in_pool) == EMM_OK);
    const emm_deviceptr kept = gpu.allocate(1000), gone = gpu.allocate(8 << 20);
    CHECK(gpu.free(gone, 8 << 20) == EMM_OK);
    REQUIRE(emm_memfree(pool, in_pool, 3000, EMM_STREAM_UNORDERED) == EMM_OK);
    CHECK(gpu.stats().peak_live_bytes == 1000 + (8 << 20));
    REQUIRE(emm_context_reset_peaks(gpu.emm()) == EMM_OK);
    CHECK(gpu.stats().peak_live_bytes == 1000);
    CHECK(gpu.stats().allocations == 2);
    CHECK(stats_of(pool).peak_live_bytes == 3000);
    CHECK(gpu.free(gpu.allocate(2000), 2000) == EMM_OK);
    CHECK(gpu.stats().peak_live_bytes == 3000);
    CHECK(gpu.free(kept, 1000) == EMM_OK);
}

TEST_CASE("a request that the device can never meet takes nothing and moves no peak") {
    const Gpu gpu;
    const emm_deviceptr kept = gpu.allocate(1 << 20);
    const size_t most = most_bytes();
    // The second size would be all memory, if no other memory was live.
    for (const size_t size : {most + (size_t(1) << 30), most, 10 * most}) {
        const uint64_t held = device_bytes();
        const emm_stats before = gpu.stats();
        emm_deviceptr none = 77;
        CHECK(emm_memalloc(gpu.emm(), size, EMM_STREAM_LEGACY, &none) == EMM_E_OUT_OF_MEMORY);
        CHECK(none == 77);
        CHECK(device_bytes() <= held);
        const emm_stats after = gpu.stats();
        CHECK(after.peak_reserved_bytes == before.peak_reserved_bytes);
        CHECK(after.peak_live_bytes == before.peak_live_bytes);
    }
    CHECK(gpu.free(kept, 1 << 20) == EMM_OK);
}

TEST_CASE("an older caller's shorter statistics are filled as far as they go") {
    const Gpu gpu;
    emm_stats stats = {};
    stats.struct_size = offsetof(emm_stats, cached_bytes);
    stats.cached_bytes = 77;
    REQUIRE(emm_get_stats(gpu.emm(), &stats) == EMM_OK);
    CHECK(stats.cached_bytes == 77);
    CHECK(stats.struct_size == offsetof(emm_stats, cached_bytes));
}

TEST_CASE("memory freed unordered is not in use when it is given out again") {
    const Gpu gpu;
    const CUstream streams[] = {gpu.make_stream(), gpu.make_stream(CU_STREAM_DEFAULT), nullptr};
    const uint64_t before = races();
    const size_t size = 1 << 20;
    for (unsigned i = 0; i < 60; i++) {
        const CUstream stream = streams[i % 3];
        const emm_deviceptr ptr = gpu.allocate(size, i % 2 ? stream : EMM_STREAM_UNORDERED);
        fill(ptr, size, i, stream);
        REQUIRE(gpu.free(ptr, size, EMM_STREAM_UNORDERED) == EMM_OK);
    }
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    CHECK(races() == before);
}

TEST_CASE("memory whose use was recorded on another stream waits for that stream") {
    const Gpu gpu;
    const CUstream own = gpu.make_stream(), other = gpu.make_stream(), next = gpu.make_stream();
    const uint64_t before = races();
    const size_t size = 1 << 20;
    for (unsigned i = 0; i < 20; i++) {
        const emm_deviceptr ptr = gpu.allocate(size, own);
        synchronize(own);
        fill(ptr, size, i, other);
        REQUIRE(emm_record_use(gpu.emm(), ptr, size, other) == EMM_OK);
        REQUIRE(gpu.free(ptr, size, own) == EMM_OK);
        const emm_deviceptr again = gpu.allocate(size, next);
        fill(again, size, i, next);
        REQUIRE(gpu.free(again, size, next) == EMM_OK);
    }
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    CHECK(races() == before);
    CHECK(emm_record_use(gpu.emm(), 0xabc000, 16, other) == EMM_E_NOT_OWNED);
}

TEST_CASE("portable memory that is freed unordered waits for the work of every context") {
    const Gpu gpu;
    const Gpu other; // its context is current now
    const CUstream stream = other.make_stream();
    const uint64_t before = races();
    constexpr uint32_t flags = EMM_HOST_PORTABLE | EMM_HOST_MAPPED;
    const size_t size = 1 << 20;
    void *host = nullptr;
    emm_deviceptr ptr = 0;
    REQUIRE(emm_memhostalloc(gpu.emm(), size, flags, &host, &ptr) == EMM_OK);
    fill(ptr, size, 1, stream);
    SECTION("that is served") {
        REQUIRE(emm_memhostfree(gpu.emm(), host, size, flags, EMM_STREAM_UNORDERED) == EMM_OK);
        CHECK(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    }
    SECTION("that was retired") {
        REQUIRE(emm_context_retire(other.emm()) == EMM_OK);
        REQUIRE(emm_memhostfree(gpu.emm(), host, size, flags, EMM_STREAM_UNORDERED) == EMM_OK);
        CHECK(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    }
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    CHECK(races() == before);
}

TEST_CASE("a driver error reaches the caller with its name and number, and nothing is kept",
          "[sim]") {
    const Gpu gpu;
    const std::string name = plugin_name();
    const std::string entry = name == "async"     ? "cuMemAllocFromPoolAsync"
                              : name == "pool"    ? "cuMemCreate"
                              : name == "managed" ? "cuMemAllocManaged"
                                                  : "cuMemAlloc";
    fail_next((entry + "@1:999").c_str());
    emm_deviceptr ptr = 7;
    CHECK(emm_memalloc(gpu.emm(), 4096, EMM_STREAM_UNORDERED, &ptr) == EMM_E_DRIVER);
    CHECK(ptr == 7);
    CHECK(emm_last_error()->driver_result == CUDA_ERROR_UNKNOWN);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("CUDA_ERROR_UNKNOWN (999)"));
    fail_next(nullptr);
    CHECK(gpu.stats().live_count == 0);
    CHECK(gpu.free(gpu.allocate(4096), 4096) == EMM_OK);
}

TEST_CASE("memory that the driver refuses to take back stays counted, and is freed another time",
          "[sim]") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const uint64_t before = device_bytes();
    const auto reserved = [&] { return gpu.stats().reserved_bytes; };
    const auto retry = [&] { // at the latest in the fourth call
        for (int i = 0; i < 4; i++) {
            CHECK(gpu.free(gpu.allocate(4096, stream), 4096, stream) == EMM_OK);
            REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
            REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
        }
    };
    SECTION("in a free") {
        const emm_deviceptr ptr = gpu.allocate(64 << 20, stream);
        fail_next("cuMemFree@1");
        fail_next("cuMemFreeAsync@1");
        if (gpu.free(ptr, 64 << 20, stream) != EMM_OK) {
            CHECK(gpu.free(ptr, 64 << 20, stream) == EMM_OK); // it was not freed
        }
        synchronize(stream);
        REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    }
    SECTION("in a reset") {
        gpu.allocate(64 << 20, stream);
        fail_next("cuMemFreeAsync@1");
        fail_next(plugin_name() == "pool" ? "cuMemRelease@1" : "cuMemFree@1");
        REQUIRE(emm_context_reset(gpu.emm()) == EMM_OK);
    }
    CHECK(reserved() == device_bytes() - before);
    retry();
    CHECK(device_bytes() == before);
    CHECK(reserved() == 0);
    fail_next("");
}

TEST_CASE("retiring gives back memory that the driver has refused once to take", "[sim]") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const uint64_t before = device_bytes();
    const emm_deviceptr ptr = gpu.allocate(64 << 20, stream);
    gpu.allocate(64 << 20, stream);
    const auto refuse_once = [] {
        fail_next("cuMemFreeAsync@1");
        fail_next(plugin_name() == "pool" ? "cuMemRelease@1" : "cuMemFree@1");
    };
    SECTION("in a trim") {
        CHECK(gpu.free(ptr, 64 << 20, stream) == EMM_OK);
        synchronize(stream);
        refuse_once();
        REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    }
    SECTION("in a reset") {
        refuse_once();
        REQUIRE(emm_context_reset(gpu.emm()) == EMM_OK);
    }
    SECTION("as the context was retired") {
        refuse_once();
    }
    CHECK(emm_context_retire(gpu.emm()) == EMM_OK);
    fail_next("");
    CHECK(device_bytes() <= before);
}

TEST_CASE("a request waits for memory that another thread is giving back", "[sim]") {
    request_what_another_thread_gives_back();
}

TEST_CASE("host memory that the driver refuses to take back is freed another time", "[sim]") {
    const Gpu gpu;
    const uint64_t before = host_bytes();
    const auto allocate_and_free = [&] {
        void *host = nullptr;
        emm_deviceptr managed = 0;
        REQUIRE(emm_memhostalloc(gpu.emm(), 1 << 20, 0, &host, nullptr) == EMM_OK);
        CHECK(emm_memhostfree(gpu.emm(), host, 1 << 20, 0, EMM_STREAM_UNORDERED) == EMM_OK);
        REQUIRE(emm_memallocmanaged(gpu.emm(), 4096, EMM_ATTACH_GLOBAL, &managed) == EMM_OK);
        CHECK(emm_memfreemanaged(gpu.emm(), managed, 4096, EMM_STREAM_UNORDERED) == EMM_OK);
        REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    };
    allocate_and_free();
    fail_next("cuMemFreeHost@1+");
    fail_next("cuMemFree@1+");
    CHECK(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    fail_next(nullptr);
    CHECK(host_bytes() > before);
    for (int i = 0; i < 4; i++) { // at the latest in the fourth call
        allocate_and_free();
        REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    }
    CHECK(host_bytes() == before);
}
