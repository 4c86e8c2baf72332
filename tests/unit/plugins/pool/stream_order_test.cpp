// Behaviour: memory goes from one stream to another after their work is ordered, and stays
// reusable.
#include "simulation.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <thread>

using namespace pool_test;

namespace {

// Frees on one stream, takes on another, touches on both: the driver's clocks are the judge.
void pass_on(Simulation &sim, CUstream giver, CUstream taker, size_t size) {
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 20; i++) {
        blocks.push_back(sim.alloc(size, giver));
        sim.touch(blocks.back(), size, giver == unordered ? legacy : giver);
    }
    for (const CUdeviceptr ptr : blocks) {
        sim.free(ptr, giver);
    }
    blocks.clear();
    for (int i = 0; i < 20; i++) {
        blocks.push_back(sim.alloc(size, taker));
        sim.touch(blocks.back(), size, taker == unordered ? legacy : taker);
    }
    for (const CUdeviceptr ptr : blocks) {
        sim.free(ptr, taker);
    }
    CHECK(sim.races() == 0);
}

} // namespace

TEST_CASE("memory goes from one stream to another only after ordering, whatever the streams are") {
    for (const size_t size : {2 * KiB, 40 * KiB, 3 * MiB}) {
        Simulation sim;
        const CUstream streams[] = {sim.stream(), sim.stream(false), legacy,   sim.stream(false),
                                    per_thread,   sim.stream(),      unordered};
        for (const CUstream giver : streams) {
            for (const CUstream taker : streams) {
                pass_on(sim, giver, taker, size);
            }
        }
    }
}

// Driver calls for 100 blocks that one stream frees and another gets, after `idle` further streams
// have freed some.
static uint64_t calls_of_passing_on(int idle, bool registered) {
    Simulation sim;
    for (int i = 0; i < idle; i++) {
        const CUstream stream = sim.stream(registered);
        for (const size_t size : {2 * KiB, 300 * KiB, 3 * MiB}) {
            sim.free(sim.alloc(size, stream), stream);
        }
    }
    const CUstream giver = sim.stream(), taker = sim.stream();
    uint64_t before = 0;
    for (int round = 0; round < 2; round++) {
        before = driver_calls();
        for (int i = 0; i < 100; i++) {
            sim.free(sim.alloc(4 * MiB, taker), giver);
        }
    }
    return driver_calls() - before;
}

TEST_CASE("a stream that does nothing is asked nothing: 512 cost no more driver calls than 8") {
    for (const bool registered : {true, false}) {
        const uint64_t beside_few = calls_of_passing_on(8, registered);
        CHECK(beside_few >= 200); // an event and a query each
        // Where work progresses at random a few more may be asked again.
        CHECK(calls_of_passing_on(512, registered) <= beside_few + 20);
    }
}

TEST_CASE("slots that are given back wait for their own uses, not for earlier work") {
    Simulation sim;
    const CUstream first = sim.stream(), second = sim.stream();
    const auto use = [&](size_t count, size_t size, CUstream stream) {
        std::vector<CUdeviceptr> blocks;
        for (size_t i = 0; i < count; i++) {
            blocks.push_back(sim.alloc(size, stream));
            sim.touch(blocks.back(), size, stream);
        }
        return blocks;
    };
    const auto free_all = [&](const std::vector<CUdeviceptr> &blocks, CUstream stream) {
        for (const CUdeviceptr ptr : blocks) {
            CHECK(sim.free(ptr, stream) == EMM_OK);
        }
    };
    std::vector<CUdeviceptr> slots = use(16, 32 * KiB, first); // two slabs
    std::sort(slots.begin(), slots.end());
    const std::vector<CUdeviceptr> kept = {slots.front(), slots.back()}; // one of each
    free_all({slots.begin() + 1, slots.end() - 1}, first);
    free_all(use(2, 3 * MiB, first), first);
    free_all(use(1, 100 * MiB, second), second); // after this the first stream has an event
    for (const CUdeviceptr ptr : kept) {
        sim.touch(ptr, 32 * KiB, first);
    }
    free_all(kept, first); // a slab is idle as soon as the magazine is emptied
    free_all(use(16, 256 * KiB, second), second);
    CHECK(sim.races() == 0);
}

TEST_CASE("a registered stream's memory serves another rather than that the pool grows") {
    Simulation sim;
    const CUstream a = sim.stream(), b = sim.stream();
    const CUdeviceptr ptr = sim.alloc(10 * MiB, a);
    sim.touch(ptr, 10 * MiB, a);
    sim.free(ptr, a);
    CHECK(sim.alloc(10 * MiB, b) == ptr);
    sim.touch(ptr, 10 * MiB, b);
    CHECK(sim.held() == 10 * MiB);
}

TEST_CASE("what is complete stays open to all when a stream frees beside it") {
    Simulation sim("segment=64MiB");
    const CUstream a = sim.stream(), b = sim.stream();
    const CUdeviceptr ptr = sim.alloc(2 * MiB, a); // the rest of the segment is untouched
    sim.touch(ptr, 2 * MiB, a);
    sim.free(ptr, a);
    const uint64_t waits = cuda().call_count("cuStreamWaitEvent");
    const uint64_t records = cuda().call_count("cuEventRecord");
    const CUdeviceptr other = sim.alloc(40 * MiB, b);
    sim.touch(other, 40 * MiB, b);
    CHECK(cuda().call_count("cuStreamWaitEvent") == waits);
    CHECK(cuda().call_count("cuEventRecord") == records);
    CHECK(sim.held() == 64 * MiB);
    sim.free(other, b);
}

TEST_CASE("a handle that comes back for a new stream does not find the old one's memory") {
    for (const bool registered : {false, true}) {
        Simulation sim;
        for (int i = 0; i < 20; i++) {
            const CUstream stream = sim.stream(registered);
            for (const size_t size : {3 * KiB, 2 * MiB}) {
                const CUdeviceptr ptr = sim.alloc(size, stream);
                sim.touch(ptr, size, stream);
                sim.free(ptr, stream);
            }
            sim.destroy(stream);
        }
        CHECK(sim.races() == 0);
    }
}

TEST_CASE("ten thousand short-lived streams leave reserved memory flat") {
    for (const bool registered : {false, true}) {
        Simulation sim;
        for (int i = 0; i < 10000; i++) {
            const CUstream stream = sim.stream(registered);
            const CUdeviceptr ptr = sim.alloc(64 * KiB, stream);
            const CUdeviceptr small = sim.alloc(100, stream);
            sim.touch(ptr, 64 * KiB, stream);
            sim.free(ptr, stream);
            sim.free(small, stream);
            sim.destroy(stream);
        }
        CHECK(sim.held() <= 8 * MiB);
    }
}

TEST_CASE("an announced further use is waited for") {
    for (const size_t size : {5 * KiB, 2 * MiB}) {
        for (const bool registered : {true, false}) {
            Simulation sim;
            const CUstream home = sim.stream(), other = sim.stream(registered);
            const CUstream third = sim.stream();
            for (int i = 0; i < 10; i++) {
                const CUdeviceptr ptr = sim.alloc(size, home);
                sim.touch(ptr, size, home);
                sim.order(home, other);
                sim.order(home, third);
                CHECK(pool().record_use(sim.manager, ptr, size, other) == EMM_OK);
                CHECK(pool().record_use(sim.manager, ptr, size, third) == EMM_OK);
                CHECK(pool().record_use(sim.manager, ptr, size, other) == EMM_OK);
                sim.touch(ptr, size, other);
                sim.order(other, third);
                sim.touch(ptr, size, third);
                CHECK(sim.free(ptr, home) == EMM_OK);
            }
            CHECK(sim.races() == 0);
            CHECK(sim.stats().live_count == 0);
        }
    }
}

TEST_CASE("a further use is announced for live allocations only") {
    Simulation sim;
    CHECK(pool().record_use(sim.manager, 0x1000, 1, legacy) == EMM_E_NOT_OWNED);
    const CUdeviceptr ptr = sim.alloc(MiB, legacy);
    CHECK(pool().record_use(sim.manager, ptr + 512, 1, legacy) == EMM_E_NOT_OWNED);
    sim.free(ptr, legacy);
    CHECK(pool().record_use(sim.manager, ptr, 1, legacy) == EMM_E_NOT_OWNED);
}

TEST_CASE("unordered frees do not wait, and come back when all work is done") {
    Simulation sim;
    const CUstream busy = sim.stream(false);
    const CUdeviceptr buffer = sim.alloc(MiB, busy);
    const uint64_t waits =
        cuda().call_count("cuCtxSynchronize") + cuda().call_count("cuEventSynchronize");
    for (int i = 0; i < 3000; i++) {
        sim.touch(buffer, MiB, busy);
        const CUdeviceptr ptr = sim.alloc(4 * KiB, unordered);
        sim.touch(ptr, 4 * KiB, i % 2 ? busy : legacy);
        sim.free(ptr, unordered);
    }
    CHECK(cuda().call_count("cuCtxSynchronize") + cuda().call_count("cuEventSynchronize") == waits);
    CHECK(sim.races() == 0);
    cuda().cuStreamSynchronize(busy);
    sim.free(buffer, busy);
}

TEST_CASE("unordered pairs need no more host memory, however many there are") {
    Simulation sim;
    const auto run = [&](int pairs) {
        for (; pairs > 0; pairs--) {
            sim.free(sim.alloc(256, unordered), unordered);
        }
    };
    run(20'000);
    const size_t before = mallinfo2().uordblks;
    run(40'000);
    CHECK(mallinfo2().uordblks <= before + 128 * KiB);
}

TEST_CASE("a stream that retires leaves its memory to the others") {
    Simulation sim;
    const CUstream a = sim.stream();
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 500; i++) {
        blocks.push_back(sim.alloc(1 * KiB + size_t(i) * 100, a));
        sim.touch(blocks.back(), KiB, a);
    }
    for (const CUdeviceptr ptr : blocks) {
        sim.free(ptr, a);
    }
    sim.destroy(a);
    cuda().cuCtxPushCurrent(sim.context);
    cuda().cuCtxSynchronize();
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
    const uint64_t held = sim.held();
    CHECK(sim.trim() == held);
}

TEST_CASE("an event that could not be asked once is asked again") {
    Simulation sim;
    const CUstream a = sim.stream(), b = sim.stream();
    const CUdeviceptr ptr = sim.alloc(10 * MiB, a);
    sim.touch(ptr, 10 * MiB, a);
    sim.free(ptr, a);
    REQUIRE(cuda().fail("cuEventQuery@1:999") == CUDA_SUCCESS);
    const CUdeviceptr first = sim.alloc(10 * MiB, b);
    cuda().fail(nullptr);
    cuda().cuCtxPushCurrent(sim.context);
    cuda().cuCtxSynchronize();
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
    const CUdeviceptr second = sim.alloc(10 * MiB, b);
    CHECK((first == ptr || second == ptr));
}

TEST_CASE("further uses on unregistered streams do not make the pool grow") {
    for (const bool own : {true, false}) {
        Simulation sim;
        const CUstream home = sim.stream(), other = own ? per_thread : sim.stream(false);
        for (int i = 0; i < 100; i++) {
            const CUdeviceptr ptr = sim.alloc(4 * MiB, home);
            sim.touch(ptr, 4 * MiB, home);
            sim.order(home, other);
            CHECK(pool().record_use(sim.manager, ptr, 0, other) == EMM_OK);
            sim.touch(ptr, 4 * MiB, other);
            CHECK(sim.free(ptr, home) == EMM_OK);
            synchronize(sim);
        }
        CHECK(sim.held() <= 40 * MiB);
    }
}

TEST_CASE("a trim after a synchronize returns what streams left that ended unannounced") {
    for (const char *growth : {"growth=segment", "growth=vmm"}) {
        Simulation sim(growth);
        const CUstream home = sim.stream(), third = sim.stream(false);
        for (int i = 0; i < 4; i++) {
            const CUstream other = sim.stream(false);
            const CUdeviceptr ptr = sim.alloc(3 * MiB, home), kept = sim.alloc(1 * MiB, other);
            const CUdeviceptr left = sim.alloc(1 * MiB, other);
            CHECK(pool().record_use(sim.manager, ptr, 0, other) == EMM_OK);
            sim.touch(ptr, 3 * MiB, other);
            sim.touch(left, 1 * MiB, other);
            CHECK(sim.free(ptr, home) == EMM_OK);
            CHECK(sim.free(left, other) == EMM_OK);
            sim.order(other, third);
            sim.destroy(other);
            CHECK(sim.free(kept, third) == EMM_OK);
        }
        synchronize(sim);
        sim.trim();
        CHECK(sim.held() == 0);
    }
}

TEST_CASE("threads that end leave the memory of their own streams to others") {
    Simulation sim;
    for (int i = 0; i < 60; i++) {
        std::thread([&sim] {
            std::vector<CUdeviceptr> blocks;
            for (int block = 0; block < 128; block++) {
                blocks.push_back(sim.alloc(64 * KiB, per_thread));
                sim.touch(blocks.back(), 64 * KiB, per_thread);
            }
            for (const CUdeviceptr ptr : blocks) {
                sim.free(ptr, per_thread);
            }
        }).join();
        synchronize(sim);
    }
    CHECK(sim.held() <= 80 * MiB);
}

// Where memory is at hand, no request has a reason to ask about them.
TEST_CASE("streams that were left alone are forgotten and not asked about for ever") {
    for (const char *options : {"", "initial=256MiB", "growth=vmm,initial=256MiB"}) {
        INFO(options);
        constexpr size_t streams = 3000, round = 100, bytes = 2000; // with 1 KiB of the simulator's
        Simulation sim(options);
        const CUstream first = sim.stream();
        sim.free(sim.alloc(KiB, first), first);
        const uint64_t objects = Simulation::objects(), held = sim.held();
        const size_t used = mallinfo2().uordblks;
        for (size_t i = 0; i < streams; i++) {
            const CUstream stream = sim.stream(false);
            const CUdeviceptr ptr = sim.alloc(KiB, stream);
            sim.touch(ptr, KiB, stream);
            sim.free(ptr, stream);
            sim.destroy(stream);
            if (i % round == round - 1) {
                synchronize(sim);
            }
        }
        CHECK(Simulation::objects() <= objects + 3 * round); // an event for each known stream
        CHECK(mallinfo2().uordblks <= used + streams * bytes);
        CHECK(sim.held() <= held + 16 * MiB);
        const uint64_t before = cuda().call_count("cuEventQuery");
        sim.alloc(40 * MiB, first); // this looks for complete frees
        CHECK(cuda().call_count("cuEventQuery") - before <= 500);
    }
}

namespace {

// As many pairs as make the thread get a magazine for an unregistered stream.
void pairs_on(Simulation &sim, CUstream stream, int count = 100) {
    for (int i = 0; i < count; i++) {
        sim.free(sim.alloc(2000, stream), stream);
    }
}

} // namespace

TEST_CASE("a stream that is registered late costs no driver call from then on") {
    Simulation sim;
    const CUstream stream = sim.stream(false);
    pairs_on(sim, stream);
    sim.notice(stream, EMM_STREAM_REGISTERED);
    pairs_on(sim, stream, 10);
    const uint64_t asked = cuda().call_count("cuStreamIsCapturing");
    pairs_on(sim, stream);
    CHECK(cuda().call_count("cuStreamIsCapturing") == asked);
    sim.notice(stream, EMM_STREAM_RETIRING);
}

TEST_CASE("an unregistered stream's next call hears that others wait for what it has freed") {
    if (const char *settings = getenv("EMM_SIM"); !settings || !strstr(settings, "progress=lazy")) {
        return; // where work is complete by itself nothing is waited for
    }
    Simulation sim("max=64MiB");
    const CUstream stream = sim.stream(false), other = sim.stream();
    pairs_on(sim, stream);
    const CUdeviceptr large = sim.alloc(40 * MiB, stream);
    sim.touch(large, 40 * MiB, stream);
    sim.free(large, stream);
    pairs_on(sim, stream, 10);
    const CUdeviceptr small = sim.alloc(2000, stream);
    sim.free(sim.alloc(16 * MiB, other), other);
    const uint64_t records = cuda().call_count("cuEventRecord");
    sim.free(small, stream); // into the magazine, if the stream has not heard
    CHECK(cuda().call_count("cuEventRecord") > records);
}
