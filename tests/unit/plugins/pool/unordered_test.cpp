// Behaviour: the pool learns with few driver calls when unordered frees are complete.
#include "simulation.h"

using namespace pool_test;

namespace {

// The driver calls of the second 1,000 pairs of that size.
uint64_t calls_of_pairs(const char *growth, size_t size, bool busy) {
    Simulation sim(growth);
    const CUdeviceptr used = sim.alloc(size, legacy);
    uint64_t before = 0;
    for (int round = 0; round < 2; round++) {
        if (busy) {
            sim.touch(used, size, legacy);
        }
        before = driver_calls();
        for (int i = 0; i < 1000; i++) {
            sim.free(sim.alloc(size, unordered), unordered);
        }
        REQUIRE(cuda().cuStreamSynchronize(legacy) == CUDA_SUCCESS);
    }
    return driver_calls() - before;
}

} // namespace

// If work progresses only during waits, no free of a round is complete before the round ends. The
// second round then grows by the memory that the last event of the first does not cover.
TEST_CASE("unordered: a pair costs a fifth of a driver call, beside work or not") {
    for (const char *growth : {"growth=vmm", "growth=segment"}) {
        for (const size_t size : {64 * KiB, 1 * MiB, 2 * MiB}) {
            CAPTURE(growth, size);
            CHECK(calls_of_pairs(growth, size, false) <= 200);
            CHECK(calls_of_pairs(growth, size, true) <= 200);
        }
    }
}

// A program that empties its cache, as PyTorch does, returns all of its blocks at once.
TEST_CASE(
    "unordered: much freed memory that is complete serves other sizes before the pool grows") {
    Simulation sim("growth=vmm");
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 10; i++) {
        blocks.push_back(sim.alloc(20 * MiB, unordered));
    }
    const size_t held = sim.held();
    for (const CUdeviceptr block : blocks) {
        sim.free(block, unordered);
    }
    for (int i = 0; i < 10; i++) {
        sim.alloc(14 * MiB, unordered);
    }
    CHECK(sim.held() == held);
}

// CuPy copies through such memory, and its freed blocks wait as long as the program frees no more.
TEST_CASE("unordered: portable pinned memory that waits makes pairs ask no more often") {
    Simulation sim;
    void *host = nullptr;
    CUdeviceptr device = 0;
    REQUIRE(pool().memhostalloc(sim.manager, 4 * MiB, EMM_HOST_PORTABLE, &host, &device) == EMM_OK);
    const CUdeviceptr used = sim.alloc(1 * MiB, legacy);
    sim.touch(used, 1 * MiB, legacy);
    REQUIRE(pool().memhostfree(sim.manager, host, 0, EMM_HOST_PORTABLE, unordered) == EMM_OK);
    for (int i = 0; i < 1000; i++) {
        sim.free(sim.alloc(2 * MiB, unordered), unordered);
    }
    const uint64_t before = driver_calls();
    for (int i = 0; i < 1000; i++) {
        sim.free(sim.alloc(2 * MiB, unordered), unordered);
    }
    CHECK(driver_calls() - before <= 200);
    REQUIRE(cuda().cuStreamSynchronize(legacy) == CUDA_SUCCESS);
}

// Each piece of work is short; all together are longer than a wait in which no work ends.
TEST_CASE("unordered: a large request waits a while for memory as long as work goes on") {
    Simulation sim("growth=vmm,max=4GiB");
    const CUdeviceptr kept = sim.alloc(64 * MiB, unordered);
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 45; i++) {
        blocks.push_back(sim.alloc(16 * MiB, unordered));
    }
    for (const CUdeviceptr block : blocks) {
        for (int i = 0; i < 2; i++) {
            sim.touch(block, 4 * KiB, legacy);
        }
        sim.free(block, unordered);
    }
    const size_t held = sim.held();
    sim.free(sim.alloc(512 * MiB, unordered), unordered);
    CHECK((work_takes_ages() || sim.held() <= held + 64 * MiB));
    sim.free(kept, unordered);
    CHECK(sim.races() == 0);
}

TEST_CASE("unordered: a program that runs ahead of the device holds little more than it uses") {
    for (const char *options : {"growth=vmm,max=4GiB", "growth=segment,max=4GiB"}) {
        CAPTURE(options);
        Simulation sim(options);
        std::vector<CUdeviceptr> used;
        for (int i = 0; i < 16; i++) {
            used.push_back(sim.alloc(16 * MiB, unordered));
        }
        for (int i = 0; i < 150; i++) {
            CUdeviceptr &block = used[size_t(i) % used.size()];
            sim.touch(block, 16 * MiB, legacy);
            sim.free(block, unordered);
            block = sim.alloc(16 * MiB, unordered);
        }
        CHECK(sim.races() == 0);
        CHECK((work_takes_ages() || sim.held() <= 400 * MiB));
    }
}
