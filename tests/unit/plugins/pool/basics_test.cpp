// Behaviour: the pool's promises for one allocation, its statistics, its limits and its end.
#include "simulation.h"

#include <atomic>
#include <set>
#include <thread>

using namespace pool_test;

TEST_CASE("addresses are aligned, distinct and within what was asked of the driver") {
    Simulation sim;
    std::set<CUdeviceptr> seen;
    for (const size_t size :
         {size_t(1), size_t(512), size_t(513), 5 * KiB, 32 * KiB, 33 * KiB, 3 * MiB, 70 * MiB}) {
        const CUdeviceptr ptr = sim.alloc(size, legacy);
        CHECK(ptr % 512 == 0);
        CHECK(seen.insert(ptr).second);
        sim.touch(ptr, size, legacy);
    }
    for (const CUdeviceptr ptr : seen) {
        CHECK(sim.free(ptr, legacy) == EMM_OK);
    }
}

static uint64_t calls_about_device() {
    return cuda().call_count("cuDeviceTotalMem") + cuda().call_count("cuDeviceGetAttribute");
}

// Besides entries, the plugin only asks for the device's attributes: it takes memory, addresses and
// events only when needed.
TEST_CASE("a new context costs at most three driver calls before its first allocation") {
    CUcontext context = nullptr;
    REQUIRE(cuda().cuCtxCreate(&context, 0, 0) == CUDA_SUCCESS);
    for (const char *growth : {"", "growth=vmm", "growth=segment"}) {
        CAPTURE(growth);
        const uint64_t of_device = calls_about_device(),
                       entries = cuda().call_count("cuGetProcAddress");
        emm_manager *manager = nullptr;
        const uint64_t before = Simulation::counters().calls;
        REQUIRE(create(growth, context, manager) == EMM_OK);
        const uint64_t found = cuda().call_count("cuGetProcAddress") - entries;
        // Without cuCtxGetId, by the test.
        const uint64_t calls = Simulation::counters().calls - before - found - 1;
        CHECK(calls <= 3);
        CHECK(calls == calls_about_device() - of_device);
        CHECK(pool().destroy(manager) == EMM_OK);
    }
    cuda().cuCtxDestroy(context);
}

TEST_CASE("a stream gets back at once what it freed, with no driver call") {
    Simulation sim;
    for (const CUstream stream : {sim.stream(), legacy}) {
        for (const size_t size : {4 * KiB, 64 * KiB, 5 * MiB}) {
            const CUdeviceptr ptr = sim.alloc(size, stream);
            sim.touch(ptr, size, stream);
            sim.free(ptr, stream, size);
            const uint64_t before = Simulation::counters().calls;
            CHECK(sim.alloc(size, stream) == ptr);
            sim.free(ptr, stream, size);
            CHECK(Simulation::counters().calls == before);
        }
    }
}

TEST_CASE("an address is freed once, where it begins, with its own size or none") {
    Simulation sim;
    for (const size_t size : {4 * KiB, 100 * KiB}) {
        const CUdeviceptr ptr = sim.alloc(size, legacy);
        CHECK(sim.free(ptr + 512, legacy) == EMM_E_NOT_OWNED);
        CHECK(sim.free(ptr + 1, legacy) == EMM_E_NOT_OWNED);
        CHECK(sim.free(0x1234567000, legacy) == EMM_E_NOT_OWNED);
        CHECK(sim.free(~CUdeviceptr(0) - 511, legacy) == EMM_E_NOT_OWNED);
        CHECK(sim.free(ptr, legacy, size + 1) == EMM_E_INVALID_VALUE);
        CHECK_THAT(last_failure().text, ContainsSubstring(std::to_string(size)));
        CHECK(sim.free(ptr, legacy, size) == EMM_OK);
        CHECK(sim.free(ptr, legacy, size) == EMM_E_NOT_OWNED);
        CHECK_THAT(last_failure().text, ContainsSubstring("no live allocation"));
    }
    CHECK(sim.stats().frees == 2);
}

TEST_CASE("query finds the allocation around an address, and nothing beside it") {
    Simulation sim;
    for (const size_t size : {3000 * size_t(1), 100 * KiB + 5, 9 * MiB}) {
        const CUdeviceptr ptr = sim.alloc(size, legacy);
        auto info = sized<emm_block_info>();
        for (const size_t offset : {size_t(0), size / 2, size - 1}) {
            REQUIRE(pool().query(sim.manager, ptr + offset, &info) == EMM_OK);
            CHECK(info.base == ptr);
            CHECK(info.size == size);
            CHECK(info.kind == EMM_KIND_DEVICE);
        }
        CHECK(pool().query(sim.manager, ptr + size, &info) == EMM_E_NOT_OWNED);
        CHECK(pool().query(sim.manager, ptr - 1, &info) == EMM_E_NOT_OWNED);
        sim.free(ptr, legacy);
        CHECK(pool().query(sim.manager, ptr, &info) == EMM_E_NOT_OWNED);
    }
}

TEST_CASE("query finds small allocations wherever their slab lies") {
    Simulation sim;
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 300; i++) {
        blocks.push_back(sim.alloc(30000, legacy));
    }
    for (const CUdeviceptr ptr : blocks) {
        auto info = sized<emm_block_info>();
        for (const size_t offset : {0, 15000, 29999}) {
            REQUIRE(pool().query(sim.manager, ptr + offset, &info) == EMM_OK);
            CHECK(info.base == ptr);
        }
        sim.free(ptr, legacy);
    }
}

TEST_CASE("the statistics add up") {
    Simulation sim;
    const CUstream stream = sim.stream();
    const CUdeviceptr small = sim.alloc(1000, stream);
    const CUdeviceptr large = sim.alloc(5 * MiB, stream);
    emm_stats stats = sim.stats();
    CHECK(stats.live_bytes == 1000 + 5 * MiB);
    CHECK(stats.live_count == 2);
    CHECK(stats.pending_bytes == 0);
    CHECK(stats.reserved_bytes == sim.held());
    CHECK(stats.reserved_bytes == 1024 + 5 * MiB + stats.cached_bytes);
    sim.free(large, unordered);
    stats = sim.stats();
    CHECK(stats.live_bytes == 1000);
    CHECK(stats.peak_live_bytes == 1000 + 5 * MiB);
    CHECK(stats.reserved_bytes == 1024 + stats.pending_bytes + stats.cached_bytes);
    sim.free(small, stream);
    stats = sim.stats();
    CHECK(stats.live_bytes == 0);
    CHECK(stats.live_count == 0);
    CHECK(stats.allocations == 2);
    CHECK(stats.frees == 2);
    CHECK(stats.reserved_bytes == stats.pending_bytes + stats.cached_bytes);
}

TEST_CASE("the peak covers what was live on two streams at the same time") {
    Simulation sim;
    const CUstream one = sim.stream(), other = sim.stream();
    const CUdeviceptr first = sim.alloc(8 * KiB, one), second = sim.alloc(8 * KiB, other);
    sim.free(first, one);
    sim.free(second, other);
    CHECK(sim.stats().peak_live_bytes >= 16 * KiB);
    const CUdeviceptr large = sim.alloc(64 * MiB, one), small = sim.alloc(8 * KiB, one);
    sim.free(large, one);
    sim.free(small, one);
    CHECK(sim.stats().peak_live_bytes >= 64 * MiB + 8 * KiB);
}

TEST_CASE("the statistics tell the largest free block, of a stream's own too") {
    Simulation sim("max=16MiB");
    const CUstream stream = sim.stream();
    CHECK(sim.stats().largest_free_block == 0); // no memory
    const CUdeviceptr large = sim.alloc(8 * MiB, stream), beside = sim.alloc(6 * MiB, stream);
    CHECK(sim.stats().largest_free_block <= 2 * MiB);
    sim.free(large, stream);
    const emm_stats stats = sim.stats();
    CHECK(stats.largest_free_block >= 8 * MiB);
    CHECK(stats.largest_free_block <= stats.cached_bytes);
    sim.free(beside, unordered); // the block may still be in use
    CHECK(sim.stats().largest_free_block <= sim.stats().cached_bytes);
    cuda().cuCtxSynchronize();
    const CUdeviceptr all = sim.alloc(16 * MiB, stream);
    CHECK(sim.stats().cached_bytes == 0);
    CHECK(sim.stats().largest_free_block == 0);
    sim.free(all, stream);
}

TEST_CASE("neighbours are coalesced, so that what was freed in parts serves as a whole") {
    Simulation sim("segment=64MiB");
    const CUstream stream = sim.stream();
    std::vector<CUdeviceptr> parts;
    for (int i = 0; i < 32; i++) {
        parts.push_back(sim.alloc(2 * MiB, stream));
    }
    const uint64_t held = sim.held();
    for (size_t i = 0; i < parts.size(); i++) {
        sim.free(parts[(i * 29) % 32], stream);
    }
    const CUdeviceptr whole = sim.alloc(64 * MiB, stream);
    CHECK(sim.held() == held);
    sim.free(whole, stream);
}

TEST_CASE("a small allocation keeps no large segment from going back") {
    Simulation sim;
    const CUstream stream = sim.stream();
    const CUdeviceptr large = sim.alloc(40 * MiB, stream);
    const CUdeviceptr small = sim.alloc(MiB, stream);
    sim.free(large, stream);
    CHECK(sim.trim() == 40 * MiB);
    CHECK(sim.held() == 2 * MiB);
    sim.free(small, stream);
}

TEST_CASE("what was taken at the start serves small and large requests") {
    Simulation sim("initial=64MiB");
    const CUstream stream = sim.stream();
    const CUdeviceptr small = sim.alloc(1000, stream);
    const CUdeviceptr large = sim.alloc(40 * MiB, stream);
    CHECK(sim.held() == 64 * MiB);
    sim.free(small, stream);
    sim.free(large, stream);
}

TEST_CASE("trim gives everything back once nothing is live, and keeps what it is told to keep") {
    Simulation sim;
    std::vector<CUdeviceptr> parts;
    for (int i = 0; i < 100; i++) {
        parts.push_back(sim.alloc(size_t(i) * 100 * KiB + 1, i % 2 ? legacy : unordered));
    }
    for (const CUdeviceptr ptr : parts) {
        sim.free(ptr, legacy);
    }
    cuda().cuCtxPushCurrent(sim.context);
    cuda().cuCtxSynchronize();
    const size_t kept = 100 * MiB;
    CHECK(sim.trim(kept) > 0);
    CHECK(sim.stats().cached_bytes <= kept);
    sim.trim();
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
    CHECK(sim.held() == 0);
    CHECK(sim.stats().reserved_bytes == 0);
}

TEST_CASE("inside a deferred section nothing goes back to the driver") {
    Simulation sim("release_threshold=0");
    REQUIRE(pool().defer_cleanup(sim.manager, 1) == EMM_OK);
    REQUIRE(pool().defer_cleanup(sim.manager, 1) == EMM_OK);
    sim.free(sim.alloc(8 * MiB, legacy), legacy);
    CHECK(pool().defer_cleanup(sim.manager, 0) == EMM_OK);
    CHECK(sim.trim() == 0);
    CHECK(sim.held() == 8 * MiB);
    CHECK(pool().defer_cleanup(sim.manager, 0) == EMM_OK);
    CHECK(sim.trim() == 8 * MiB);
}

TEST_CASE("idle memory beyond the release threshold goes back as it is freed") {
    Simulation sim("release_threshold=4MiB");
    const CUdeviceptr a = sim.alloc(8 * MiB, legacy);
    const CUdeviceptr b = sim.alloc(4 * MiB, legacy);
    sim.free(b, legacy);
    sim.free(a, legacy);
    const CUdeviceptr c = sim.alloc(512, legacy);
    sim.free(c, legacy);
    CHECK(sim.held() <= 6 * MiB);
}

TEST_CASE("reset drops everything, repeatedly and with no current context") {
    Simulation sim;
    CHECK(pool().reset(sim.manager) == EMM_OK);
    const CUstream stream = sim.stream();
    const CUdeviceptr ptr = sim.alloc(MiB, stream);
    sim.free(sim.alloc(2000, unordered), unordered);
    sim.alloc(100, per_thread);
    CHECK(pool().reset(sim.manager) == EMM_OK);
    CHECK(pool().reset(sim.manager) == EMM_OK);
    CHECK(sim.held() == 0);
    CHECK(sim.free(ptr, stream) == EMM_E_NOT_OWNED);
    const emm_stats stats = sim.stats();
    CHECK(stats.live_bytes == 0);
    CHECK(stats.reserved_bytes == 0);
    CHECK(sim.free(sim.alloc(MiB, stream), stream) == EMM_OK);
}

TEST_CASE("destroy frees nothing of a context that has died") {
    Simulation sim;
    sim.alloc(MiB, legacy);
    cuda().cuCtxDestroy(sim.context);
    const uint64_t frees = cuda().call_count("cuMemFree");
    sim.close();
    CHECK(cuda().call_count("cuMemFree") == frees);
    REQUIRE(cuda().cuCtxCreate(&sim.context, 0, 0) == CUDA_SUCCESS);
}

TEST_CASE("limits that no allocation fits into are refused, and the least is named") {
    const Simulation sim;
    const std::pair<const char *, const char *> refused[] = {
        {"max=0", "option max: expected at least 2MiB, found 0"},
        {"max=1MiB", "option max: expected at least 2MiB, found 1MiB"},
        {"growth=vmm,max=2047KiB", "option max: expected at least 2MiB, found 2047KiB"},
        {"host_max=1", "option host_max: expected at least 2MiB, found 1"},
        {"max=1MiB,initial=1GiB", "option max: expected at least"},
        {"slack=2",
         "option slack: expected a part of the peak between 0 and 1, such as 0.125, found 2"},
        {"places=0", "option places: expected a number from 1 to 64, found 0"},
        {"places=65", "option places: expected a number from 1 to 64, found 65"},
        {"max=64MiB,initial=1GiB", "option initial: expected no more than fits into max, which is "
                                   "64MiB, in pieces of 2MiB, found 1GiB"},
        {"max=3MiB,initial=3MiB", "option initial: expected no more than fits into max"},
        {"ipc=dedicated,dedicated_from=1KiB",
         "dedicated_from: expected at least 64KiB, found 1KiB"},
    };
    for (const auto &[options, words] : refused) {
        INFO(options);
        emm_manager *manager = nullptr;
        CHECK(create(options, sim.context, manager) == EMM_E_PLUGIN_SPEC);
        CHECK(manager == nullptr);
        CHECK_THAT(last_failure().text, ContainsSubstring(words));
        CHECK(check_options(options) == EMM_E_PLUGIN_SPEC);
        CHECK_THAT(last_failure().text, ContainsSubstring(words));
    }
    for (const char *least :
         {"max=2MiB", "growth=vmm,max=2MiB", "max=2MiB,initial=2MiB", "max=3MiB"}) {
        CHECK(check_options(least) == EMM_OK);
        Simulation other(least);
        other.free(other.alloc(2 * MiB, legacy), legacy);
    }
}

TEST_CASE("the least host_max serves pinned memory") {
    Simulation sim("host_max=2MiB");
    void *host = nullptr;
    CUdeviceptr device = 0;
    CHECK(pool().memhostalloc(sim.manager, 2 * MiB, 0, &host, &device) == EMM_OK);
    CHECK(pool().memhostfree(sim.manager, host, 2 * MiB, 0, legacy) == EMM_OK);
}

TEST_CASE("the peak of live bytes is no more than was ever reserved, whichever thread frees") {
    Simulation sim;
    const CUstream stream = sim.stream();
    std::atomic<CUdeviceptr> handed_over{0};
    std::thread taker([&] {
        for (int i = 0; i < 20000; i++) {
            CUdeviceptr ptr = 0;
            while ((ptr = handed_over.exchange(0)) == 0) {
                std::this_thread::yield();
            }
            pool().memfree(sim.manager, ptr, 4 * KiB, stream);
        }
    });
    for (int i = 0; i < 20000; i++) {
        const CUdeviceptr ptr = sim.alloc(4 * KiB, stream);
        while (handed_over.load() != 0) {
            std::this_thread::yield();
        }
        handed_over = ptr;
    }
    const emm_stats stats = sim.stats();
    taker.join();
    CHECK(stats.peak_live_bytes <= stats.peak_reserved_bytes);
}

TEST_CASE("the end of a pool destroys its events where no context can be made current") {
    for (const char *const growth : {"growth=vmm", "growth=segment"}) {
        for (const char *const call : {"cuCtxGetId", "cuCtxGetCurrent", "cuCtxPushCurrent"}) {
            for (int i = 1; i <= 4; i++) {
                CAPTURE(growth, call, i);
                Simulation sim(growth);
                const CUstream a = sim.stream(), b = sim.stream();
                for (const CUstream stream : {a, b, unordered}) {
                    sim.free(sim.alloc(3 * MiB, stream), stream);
                    sim.trim();
                }
                CUcontext popped = nullptr;
                REQUIRE(cuda().cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
                cuda().fail((std::string(call) + "@" + std::to_string(i)).c_str());
                CHECK(pool().destroy(sim.manager) == EMM_OK);
                cuda().fail("");
                sim.manager = nullptr;
                REQUIRE(cuda().cuCtxPushCurrent(popped) == CUDA_SUCCESS);
            }
        }
    }
}
