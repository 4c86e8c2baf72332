// Behaviour: growth=vmm with pieces in several places, of which one owns the memory.
#include "places.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <thread>
#include <vector>

using namespace pool_test;

TEST_CASE("places: what a stream has freed gets a second place while its work is pending") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream();
    const Comb comb(sim, teeth, stream);
    const CUdeviceptr block = sim.alloc(large, stream);
    sim.touch(block, large, stream);
    CHECK(sim.held() == held);
    CHECK(sim.stats().reserved_bytes == held);
    if (work_takes_ages()) {
        CHECK(pages_in_two_places(block, large, comb.freed) == teeth);
    }
    for (const CUdeviceptr ptr : comb.freed) {
        CHECK(sim.free(ptr, stream) == EMM_E_NOT_OWNED);
    }
    for (const CUdeviceptr ptr : comb.kept) {
        sim.touch(ptr, 2 * MiB, stream);
    }
}

TEST_CASE("places: memory moves on while work still uses its former places") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream();
    const Comb first(sim, teeth, stream);
    for (size_t parts = 1; parts < 8; parts *= 2) { // each time half of it moves again
        const CUdeviceptr block = sim.alloc(large / parts, stream);
        sim.touch(block, large / parts, stream);
        sim.free(block, stream);
        const Comb next(sim, teeth / parts / 2, stream);
    }
    const CUdeviceptr last = sim.alloc(large / 8, stream);
    sim.touch(last, large / 8, stream);
    CHECK(sim.held() == held);
    CHECK(sim.races() == 0);
}

TEST_CASE("places: a piece has no more places than the option says") {
    for (const char *options : {"growth=vmm,slack=0,places=2", "growth=vmm,slack=0,places=3"}) {
        Simulation sim(options);
        const CUstream stream = sim.stream();
        const Comb first(sim, teeth, stream);
        std::vector<CUdeviceptr> places = first.freed;
        for (size_t parts = 1; parts < 8; parts *= 2) {
            const CUdeviceptr block = sim.alloc(large / parts, stream);
            for (size_t at = 0; at < large / parts; at += 2 * MiB) {
                places.push_back(block + at);
            }
            sim.touch(block, large / parts, stream);
            sim.free(block, stream);
            const Comb next(sim, teeth / parts / 2, stream);
        }
        std::sort(places.begin(), places.end());
        places.erase(std::unique(places.begin(), places.end()), places.end());
        std::map<CUmemGenericAllocationHandle, int> count;
        for (const CUdeviceptr place : places) {
            count[piece_at(place)] += piece_at(place) != 0;
        }
        int most = 0;
        for (const auto &[piece, number] : count) {
            most = std::max(most, number);
        }
        const int bound = std::string(options).back() - '0';
        CHECK(most <= bound);
        CHECK((most == bound || !work_takes_ages()));
    }
}

TEST_CASE("places: a piece with as many places as it may have gives up a complete one to move") {
    for (const bool refused : {false, true}) {
        Simulation sim("growth=vmm,slack=0,places=2");
        const CUstream stream = sim.stream();
        const Comb comb(sim, teeth, stream);
        const CUdeviceptr block = sim.alloc(large, stream);
        synchronize(sim);
        sim.trim(64 * MiB); // queries complete frees
        sim.touch(block, large, stream);
        sim.free(block, stream);
        const Comb next(sim, teeth / 2, stream);
        cuda().fail(refused ? "cuMemUnmap@1" : "");
        CUdeviceptr last = 0;
        const emm_status status = sim.try_alloc(large / 2, stream, last);
        cuda().fail("");
        REQUIRE(status == EMM_OK);
        sim.touch(last, large / 2, stream);
        CHECK(sim.held() == held);
        if (work_takes_ages()) {
            CHECK(pages_in_two_places(last, large / 2, comb.freed) == 0);
            CHECK(pages_in_two_places(last, large / 2, next.freed) == teeth / 2);
        }
        CHECK(sim.races() == 0);
    }
}

TEST_CASE("places: memory that goes back to the driver is mapped at no former place") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream();
    const Comb comb(sim, teeth, stream);
    const CUdeviceptr block = sim.alloc(large, stream);
    sim.free(block, stream);
    synchronize(sim);
    sim.trim(64 * MiB); // queries complete frees
    sim.trim(64 * MiB);
    const CUdeviceptr again = sim.alloc(large, stream);
    sim.touch(again, large, stream);
    CHECK(sim.held() == held);
    sim.free(again, stream);
    synchronize(sim);
    sim.trim();
    sim.trim();
    CHECK(sim.held() == held - large);
    CHECK(pages_in_two_places(again, large, comb.freed) == 0);
}

TEST_CASE("places: what another stream has freed gets a second place behind its event") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream(), other = sim.stream();
    const Comb comb(sim, teeth, other);
    const CUdeviceptr block = sim.alloc(large, stream);
    CHECK(sim.held() == held);
    sim.touch(block, large, stream);
    if (work_takes_ages()) {
        CHECK(pages_in_two_places(block, large, comb.freed) == teeth);
    }
    CHECK(sim.races() == 0);
}

TEST_CASE("places: a stream waits for those streams alone whose pieces it gets") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream();
    std::vector<CUdeviceptr> blocks(2 * teeth);
    for (CUdeviceptr &block : blocks) {
        block = sim.alloc(2 * MiB, stream);
    }
    constexpr size_t others = 8, pages_of_each = teeth / others;
    for (size_t i = 0; i < teeth; i += pages_of_each) {
        const CUstream other = sim.stream();
        for (size_t j = i; j < i + pages_of_each; j++) {
            sim.order(stream, other);
            sim.touch(blocks[2 * j], 2 * MiB, other);
            sim.free(blocks[2 * j], other);
        }
    }
    const CUstream taker = sim.stream();
    const uint64_t waits = cuda().call_count("cuStreamWaitEvent");
    constexpr size_t size = 2 * pages_of_each * 2 * MiB;
    sim.touch(sim.alloc(size, taker), size, taker);
    CHECK(sim.held() == held);
    CHECK(cuda().call_count("cuStreamWaitEvent") <= waits + 2);
    CHECK(sim.races() == 0);
}

TEST_CASE("places: the simulated driver finds the race where a stream's wait is lost") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream(), other = sim.stream();
    loses_waits = true;
    const Comb comb(sim, teeth, other);
    const CUdeviceptr block = sim.alloc(large, stream);
    sim.touch(block, large, stream);
    loses_waits = false;
    if (work_takes_ages()) {
        CHECK(sim.races() > 0);
    }
    sim.forgive_races();
}

TEST_CASE("places: the simulated driver finds a lost wait for work at the place before the last") {
    for (const bool loses : {false, true}) {
        Simulation sim("growth=vmm,slack=0");
        const CUstream stream = sim.stream(), other = sim.stream();
        const Comb comb(sim, teeth, other); // the only uses
        sim.free(sim.alloc(large, other), other);
        std::vector<CUdeviceptr> blocks;
        for (size_t i = 0; i < teeth; i++) {
            blocks.push_back(sim.alloc(2 * MiB, other));
        }
        for (size_t i = 0; i < teeth; i += 2) {
            sim.free(blocks[i], other);
        }
        loses_waits = loses;
        const CUdeviceptr block = sim.alloc(large / 2, stream);
        sim.touch(block, large / 2, stream);
        loses_waits = false;
        CHECK(sim.held() == held);
        if (loses && work_takes_ages()) {
            CHECK(sim.races() > 0);
        }
        CHECK((loses || sim.races() == 0));
        sim.forgive_races();
    }
}

TEST_CASE("places: a piece whose parts two streams have freed gets a second place as a whole") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream(), other = sim.stream();
    std::vector<CUdeviceptr> halves;
    for (size_t i = 0; i < 4 * teeth; i++) {
        halves.push_back(sim.alloc(2 * MiB - 512 * (i % 2 ? 3 : 1) * KiB, i % 2 ? stream : other));
        sim.touch(halves.back(), MiB / 2, i % 2 ? stream : other);
    }
    const uint64_t before = sim.held();
    for (size_t i = 0; i < halves.size(); i++) {
        sim.free(halves[i], i % 2 ? stream : other);
    }
    const CUdeviceptr block = sim.alloc(before, stream);
    sim.touch(block, before, stream);
    CHECK(sim.held() == before);
    CHECK(sim.races() == 0);
}

TEST_CASE("places: a block with a use on another stream keeps one place until that is complete") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream(), other = sim.stream();
    const CUdeviceptr first = sim.alloc(large, stream);
    sim.touch(first, large, stream);
    const CUdeviceptr behind = sim.alloc(2 * MiB, stream);
    sim.order(stream, other);
    REQUIRE(pool().record_use(sim.manager, first, 0, other) == EMM_OK);
    sim.touch(first, large, other);
    sim.free(first, stream);
    const CUdeviceptr block = sim.alloc(large + 2 * MiB, stream);
    sim.touch(block, large + 2 * MiB, stream);
    if (work_takes_ages()) {
        CHECK(piece_at(block) != piece_at(first));
    }
    CHECK(sim.races() == 0);
    sim.free(behind, stream);
}

TEST_CASE("places: memory freed with no stream keeps one place while work is pending") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream();
    Comb comb(sim, teeth, stream);
    for (const CUdeviceptr ptr : comb.kept) {
        sim.touch(ptr, 2 * MiB, stream);
        sim.free(ptr, unordered);
    }
    const CUdeviceptr block = sim.alloc(2 * large, stream);
    sim.touch(block, 2 * large, stream);
    if (work_takes_ages()) {
        CHECK(pages_in_two_places(block, 2 * large, comb.kept) == 0);
    }
    CHECK(sim.races() == 0);
}

TEST_CASE("places: memory that a capture holds keeps one place") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream();
    const CUdeviceptr before = sim.alloc(large, stream);
    sim.alloc(2 * MiB, stream);
    cuda().cuCtxPushCurrent(sim.context);
    sim.notice(stream, EMM_STREAM_CAPTURE_BEGINS);
    REQUIRE(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    sim.touch(before, large, stream);
    sim.free(before, stream); // the graph's from now on
    const CUdeviceptr inside = sim.alloc(large, stream);
    sim.touch(inside, large, stream);
    sim.free(inside, stream);
    CUgraph graph = nullptr;
    REQUIRE(cuda().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    sim.notice(stream, EMM_STREAM_CAPTURE_ENDS);
    CUgraphExec exec = nullptr;
    REQUIRE(cuda().cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    const CUdeviceptr block = sim.alloc(2 * large, stream);
    CHECK(cuda().cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
    sim.touch(block, 2 * large, stream);
    CHECK(pages_in_two_places(block, 2 * large, {before, inside}) == 0);
    cuda().cuStreamSynchronize(stream);
    cuda().cuGraphExecDestroy(exec);
    cuda().cuGraphDestroy(graph);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
    CHECK(sim.races() == 0);
}

TEST_CASE("places: with places=1, or a peer's access, no memory is mapped at a second place") {
    for (const bool peer : {false, true}) {
        Simulation sim(peer ? "growth=vmm,slack=0" : "growth=vmm,slack=0,places=1");
        if (peer) {
            REQUIRE(pool().set_access(sim.manager, 1, EMM_ACCESS_READ_WRITE) == EMM_OK);
        }
        const CUstream stream = sim.stream();
        const Comb comb(sim, teeth, stream);
        const CUdeviceptr block = sim.alloc(large, stream);
        sim.touch(block, large, stream);
        CHECK(pages_in_two_places(block, large, comb.freed) == 0);
        CHECK(sim.held() >= (work_takes_ages() ? held + large : held));
    }
}

TEST_CASE("places: a request that may have no second place lets no stream wait for another") {
    for (const bool has_stream : {true, false}) {
        Simulation sim(has_stream ? "growth=vmm,slack=0,places=1" : "growth=vmm,slack=0");
        const CUstream stream = sim.stream(), other = sim.stream();
        const Comb comb(sim, teeth, other);
        const uint64_t waits = cuda().call_count("cuStreamWaitEvent");
        const CUdeviceptr block = sim.alloc(large, has_stream ? stream : unordered);
        sim.touch(block, large, stream);
        CHECK(cuda().call_count("cuStreamWaitEvent") == waits);
        CHECK(sim.races() == 0);
    }
}

namespace {

std::atomic<bool> gives_access{false};

} // namespace

TEST_CASE("places: a request beside a call that gives a peer access gets no second place") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream();
    const Comb comb(sim, teeth, stream);
    gives_access = false;
    before_set_access = [] {
        if (!gives_access.exchange(true)) { // the first call lasts until the request waits for it
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
    };
    std::thread giving([&] {
        cuda().cuCtxSetCurrent(sim.context);
        CHECK(pool().set_access(sim.manager, 1, EMM_ACCESS_READ_WRITE) == EMM_OK);
    });
    while (!gives_access) {
        std::this_thread::yield();
    }
    const CUdeviceptr block = sim.alloc(large, stream);
    giving.join();
    before_set_access = nullptr;
    sim.touch(block, large, stream);
    CHECK(pages_in_two_places(block, large, comb.freed) == 0);
}

// A handle whose oldest mapping ends while a younger one has no access may not be mapped any more.
TEST_CASE("places: threads that map pieces and threads that unmap them spoil none") {
    Simulation sim("growth=vmm,slack=0");
    before_set_access = [] { std::this_thread::sleep_for(std::chrono::microseconds(200)); };
    std::atomic<int> refused{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; t++) {
        threads.emplace_back([&, t, stream = sim.stream()] {
            cuda().cuCtxSetCurrent(sim.context);
            std::mt19937 random(t);
            std::vector<CUdeviceptr> live;
            for (int step = 0; step < 1000; step++) {
                CUdeviceptr ptr = 0;
                const size_t size = (1 + random() % 16) * MiB;
                if (pool().memalloc(sim.manager, size, stream, &ptr) != EMM_OK) {
                    refused++;
                    continue;
                }
                sim.touch(ptr, 1, stream);
                live.push_back(ptr);
                while (live.size() > random() % 8) {
                    std::swap(live[random() % live.size()], live.back());
                    pool().memfree(sim.manager, live.back(), 0, stream);
                    live.pop_back();
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    before_set_access = nullptr;
    INFO(last_failure().text);
    CHECK(refused == 0);
    CHECK(sim.races() == 0);
}

TEST_CASE("places: a driver call that fails loses no memory and no order") {
    const char *const calls[] = {"cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuStreamWaitEvent"};
    for (const char *call : calls) {
        for (int which = 1; which <= 18; which++) {
            Simulation sim(which % 2 ? "growth=vmm,slack=0" : "growth=vmm,slack=0,places=2");
            const CUstream stream = sim.stream(), other = sim.stream();
            const Comb mine(sim, teeth, stream), theirs(sim, teeth, other);
            cuda().fail((std::string(call) + "@" + std::to_string(which)).c_str());
            std::vector<CUdeviceptr> blocks;
            for (int i = 0; i < 12; i++) {
                if (i % 4 == 3) {
                    synchronize(sim); // former places are complete then
                    sim.trim(64 * MiB);
                }
                CUdeviceptr ptr = 0;
                const size_t size = large / 2 - size_t(i) % 3 * 4 * MiB;
                if (sim.try_alloc(size, stream, ptr) == EMM_OK) {
                    sim.touch(ptr, size, stream);
                    sim.free(ptr, i % 2 ? stream : unordered);
                    blocks.push_back(ptr);
                }
            }
            cuda().fail("");
            INFO(call << " " << which << ": " << last_failure().text);
            for (const Comb *comb : {&mine, &theirs}) {
                for (const CUdeviceptr ptr : comb->kept) {
                    sim.touch(ptr, 2 * MiB, comb == &mine ? stream : other);
                    sim.free(ptr, comb == &mine ? stream : other);
                }
            }
            synchronize(sim);
            sim.trim();
            sim.trim();
            CHECK(sim.held() == 0);
            CHECK(sim.stats().reserved_bytes == 0);
            CHECK(sim.races() == 0);
        }
    }
}
