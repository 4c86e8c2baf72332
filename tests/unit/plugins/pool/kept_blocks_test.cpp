// Behaviour: the freed blocks that a thread keeps, without a stream and large ones of a stream, and
// their way back.
#include "simulation.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

using namespace pool_test;

namespace {

// Afterwards the calling thread has complete blocks of that size at hand, and blocks that wait.
void work_in(Simulation &sim, size_t size) {
    for (int i = 0; i < 500; i++) {
        const CUdeviceptr ptr = sim.alloc(size, unordered);
        if (i % 100 == 0) {
            sim.touch(ptr, size, legacy);
            REQUIRE(cuda().cuStreamSynchronize(legacy) == CUDA_SUCCESS);
        }
        sim.free(ptr, unordered);
    }
    REQUIRE(cuda().cuStreamSynchronize(legacy) == CUDA_SUCCESS);
}

const char *const growths[] = {"growth=vmm", "growth=segment"};

} // namespace

TEST_CASE("kept blocks: a program that has settled goes round the same few") {
    for (const char *growth : growths) {
        Simulation sim(growth);
        sim.free(sim.alloc(512 * MiB, unordered), unordered);
        for (const size_t size : {64 * KiB, 1 * MiB, 4 * MiB}) {
            CAPTURE(growth, size);
            work_in(sim, size);
            std::set<CUdeviceptr> blocks;
            for (int i = 0; i < 1000; i++) {
                const CUdeviceptr ptr = sim.alloc(size, unordered);
                blocks.insert(ptr);
                sim.free(ptr, unordered);
            }
            const size_t batch = std::max<size_t>(48, 8 * MiB / size);
            CHECK((work_takes_ages() || blocks.size() <= 3 * batch));
        }
    }
}

TEST_CASE("kept blocks: none goes out again before work that uses it is over") {
    for (const char *growth : growths) {
        CAPTURE(growth);
        Simulation sim(growth);
        const CUstream streams[] = {sim.stream(), sim.stream(), sim.stream(false)};
        for (int i = 0; i < 1500; i++) {
            const size_t size = i % 5 == 0 ? 300 * KiB : 1 * MiB;
            const CUdeviceptr ptr = sim.alloc(size, unordered);
            sim.touch(ptr, size, streams[i % 3]);
            sim.free(ptr, unordered);
        }
        CHECK(sim.races() == 0);
    }
}

TEST_CASE("kept blocks: a trim has all of them") {
    for (const char *growth : growths) {
        CAPTURE(growth);
        Simulation sim(growth);
        work_in(sim, 1 * MiB);
        work_in(sim, 64 * KiB);
        sim.trim();
        CHECK(sim.held() == 0);
    }
}

TEST_CASE("kept blocks: whatever else is asked for has them all") {
    constexpr size_t most = 512 * MiB;
    for (const char *growth : growths) {
        for (const CUstream stream : {unordered, legacy}) {
            for (const bool elsewhere : {false, true}) {
                CAPTURE(growth, stream, elsewhere);
                Simulation sim(std::string(growth) + ",max=512MiB");
                work_in(sim, 1 * MiB);
                CUdeviceptr ptr = 0;
                emm_status status = EMM_E_DRIVER;
                const auto ask = [&] {
                    cuda().cuCtxSetCurrent(sim.context);
                    status = sim.try_alloc(most, stream, ptr);
                };
                elsewhere ? std::thread(ask).join() : ask();
                REQUIRE(status == EMM_OK);
                sim.free(ptr, stream);
            }
        }
    }
}

// Beside endless work 250 MiB are pending. A thread that asks for one more block then gets three,
// so what another thread takes in turn with it does not lie between.
TEST_CASE("kept blocks: a program that runs ahead of the device gets several blocks at a time") {
    for (const char *growth : growths) {
        CAPTURE(growth);
        Simulation sim(std::string(growth) + ",initial=1536MiB,max=1536MiB");
        const CUdeviceptr used = sim.alloc(1 * MiB, legacy);
        sim.touch(used, 1 * MiB, legacy);
        for (int i = 0; i < 250; i++) {
            sim.free(sim.alloc(1 * MiB, unordered), unordered);
        }
        const auto elsewhere = [&](size_t size) {
            emm_status status = EMM_E_DRIVER;
            std::thread([&] {
                CUdeviceptr ptr = 0;
                cuda().cuCtxSetCurrent(sim.context);
                status = sim.try_alloc(size, unordered, ptr);
            }).join();
            return status;
        };
        CUdeviceptr last = 0;
        int neighbours = 0;
        for (int i = 0; i < 30; i++) {
            const CUdeviceptr ptr = sim.alloc(1 * MiB, unordered);
            neighbours += std::max(ptr, last) - std::min(ptr, last) == 1 * MiB;
            last = ptr;
            REQUIRE(elsewhere(1 * MiB) == EMM_OK);
        }
        CHECK((!work_takes_ages() || neighbours >= 15));
        CHECK(elsewhere(1024 * MiB) == EMM_OK); // it has what the thread has taken ahead, too
        CHECK(sim.races() == 0);
    }
}

TEST_CASE("kept blocks: a reset forgets them") {
    Simulation sim;
    work_in(sim, 1 * MiB);
    REQUIRE(pool().reset(sim.manager) == EMM_OK);
    CHECK(sim.held() == 0);
    work_in(sim, 1 * MiB);
    CHECK(sim.races() == 0);
}

TEST_CASE("kept blocks: those of a thread that ends go out again") {
    Simulation sim("max=64MiB");
    std::thread([&] {
        cuda().cuCtxSetCurrent(sim.context);
        work_in(sim, 100 * KiB);
    }).join();
    const CUdeviceptr ptr = sim.alloc(64 * MiB, unordered);
    sim.free(ptr, unordered);
}

TEST_CASE("kept blocks: a second free and a wrong size are refused") {
    Simulation sim;
    work_in(sim, 1 * MiB);
    const CUdeviceptr ptr = sim.alloc(1 * MiB, unordered);
    CHECK(sim.free(ptr, unordered, 2 * MiB) == EMM_E_INVALID_VALUE);
    CHECK(sim.free(ptr, unordered, 1 * MiB) == EMM_OK);
    CHECK(sim.free(ptr, unordered) == EMM_E_NOT_OWNED);
    work_in(sim, 1 * MiB);
    CHECK(sim.free(ptr, unordered) == EMM_E_NOT_OWNED);
}

TEST_CASE("kept blocks: they are counted as what they are") {
    Simulation sim;
    work_in(sim, 1 * MiB);
    const CUdeviceptr a = sim.alloc(1 * MiB, unordered), b = sim.alloc(1 * MiB - 1, unordered);
    sim.free(a, unordered);
    emm_stats stats = sim.stats();
    CHECK(stats.live_bytes == 1 * MiB - 1);
    CHECK(stats.live_count == 1);
    CHECK(stats.peak_live_bytes == 2 * MiB - 1);
    CHECK(stats.allocations == 502);
    CHECK(stats.frees == 501);
    CHECK(stats.pending_bytes >= 1 * MiB);
    CHECK(stats.reserved_bytes == 1 * MiB + stats.pending_bytes + stats.cached_bytes);
    CHECK(stats.largest_free_block >= 1 * MiB);
    sim.free(b, unordered);
    CHECK(sim.stats().live_bytes == 0);
}

TEST_CASE("kept blocks: one that is used on a stream besides, or exported, is not kept") {
    Simulation sim;
    work_in(sim, 1 * MiB);
    const CUstream stream = sim.stream();
    for (int i = 0; i < 100; i++) {
        const CUdeviceptr ptr = sim.alloc(1 * MiB, unordered);
        sim.touch(ptr, 1 * MiB, stream);
        REQUIRE(pool().record_use(sim.manager, ptr, 0, stream) == EMM_OK);
        sim.free(ptr, unordered);
    }
    CHECK(sim.races() == 0);
}

TEST_CASE("kept blocks: threads share them, while another takes all of them back") {
    for (const char *growth : growths) {
        CAPTURE(growth);
        Simulation sim(growth);
        const CUstream streams[] = {sim.stream(), sim.stream(), sim.stream()};
        std::atomic<int> failed{0}, working{3};
        std::vector<std::thread> threads;
        for (int t = 0; t < 3; t++) {
            threads.emplace_back([&, t] {
                cuda().cuCtxSetCurrent(sim.context);
                for (int i = 0; i < 3000; i++) {
                    const size_t size = size_t(i % 3 + 1) * 100 * KiB;
                    CUdeviceptr ptr = 0;
                    failed += pool().memalloc(sim.manager, size, unordered, &ptr) != EMM_OK;
                    if (i % 4 == 0) {
                        sim.touch(ptr, size, streams[t]);
                    }
                    failed += pool().memfree(sim.manager, ptr, size, unordered) != EMM_OK;
                }
                working--;
            });
        }
        while (working > 0) {
            sim.trim();
            sim.stats();
            std::this_thread::yield();
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        CHECK(failed == 0);
        CHECK(sim.races() == 0);
    }
}

namespace {

// Afterwards the stream's magazine has a few blocks of that size, more than it keeps of other
// sizes.
void take_turns_in(Simulation &sim, size_t size, CUstream stream) {
    for (int i = 0; i < 10; i++) {
        const CUdeviceptr a = sim.alloc(size, stream), b = sim.alloc(size, stream);
        sim.touch(a, size, stream);
        sim.free(a, stream);
        sim.free(b, stream);
    }
}

} // namespace

TEST_CASE("kept blocks: a stream's large ones go out again whole, to that stream") {
    for (const char *growth : growths) {
        CAPTURE(growth);
        Simulation sim(growth);
        const CUstream streams[] = {legacy, sim.stream()};
        for (int i = 0; i < 100; i++) {
            const CUstream stream = streams[i / 10 % 2];
            const size_t size = i % 4 == 3 ? 3 * MiB : 16 * MiB;
            const CUdeviceptr a = sim.alloc(size, stream);
            sim.touch(a, size, stream);
            sim.free(a, stream, i % 2 == 0 ? size : 0);
            const CUdeviceptr b = sim.alloc(size, stream);
            CHECK(b == a);
            sim.free(b, stream);
        }
        CHECK(sim.races() == 0);
    }
}

TEST_CASE("kept blocks: what else is asked for has a stream's large ones") {
    constexpr size_t most = 6400 * MiB; // of which blocks of 16 MiB are kept
    for (const char *growth : growths) {
        Simulation sim(std::string(growth) + ",max=6400MiB");
        const CUstream stream = sim.stream();
        for (const CUstream other : {stream, legacy, unordered}) {
            for (const bool elsewhere : {false, true}) {
                CAPTURE(growth, other, elsewhere);
                take_turns_in(sim, 16 * MiB, stream);
                const auto ask = [&] {
                    cuda().cuCtxSetCurrent(sim.context);
                    sim.free(sim.alloc(most, other), other);
                };
                elsewhere ? std::thread(ask).join() : ask();
            }
        }
    }
}

TEST_CASE("kept blocks: a stream's large ones are counted, freed once, and a trim has them") {
    Simulation sim;
    const CUstream stream = sim.stream();
    take_turns_in(sim, 16 * MiB, stream);
    const CUdeviceptr ptr = sim.alloc(16 * MiB - 1, stream);
    CHECK(sim.free(ptr, stream, 16 * MiB) == EMM_E_INVALID_VALUE);
    CHECK(sim.free(ptr, stream, 16 * MiB - 1) == EMM_OK);
    CHECK(sim.free(ptr, stream) == EMM_E_NOT_OWNED);
    const emm_stats stats = sim.stats();
    CHECK(stats.live_count == 0);
    CHECK(stats.live_bytes == 0);
    CHECK(stats.peak_live_bytes == 32 * MiB);
    CHECK(stats.allocations == 21);
    CHECK(stats.frees == 21);
    CHECK(stats.largest_free_block >= 16 * MiB);
    CHECK(stats.reserved_bytes == stats.pending_bytes + stats.cached_bytes);
    sim.trim();
    CHECK(sim.held() == 0);
}

TEST_CASE("kept blocks: a threshold is kept beside a stream's large ones") {
    Simulation sim("release_threshold=8MiB");
    const CUstream stream = sim.stream();
    take_turns_in(sim, 16 * MiB, stream);
    REQUIRE(cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    sim.free(sim.alloc(1 * MiB, stream), stream);
    CHECK(sim.held() <= 8 * MiB);
}
