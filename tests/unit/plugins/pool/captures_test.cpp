// Behaviour: the owner and the lifetime of memory in captures and graphs.
#include "simulation.h"

#include <chrono>
#include <thread>

using namespace pool_test;

namespace {

class Captured {
public:
    Captured(Simulation &sim, CUstream stream, bool announced,
             CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL)
        : sim_(sim), stream_(stream), announced_(announced) {
        if (announced_) {
            sim_.notice(stream_, EMM_STREAM_CAPTURE_BEGINS);
        }
        REQUIRE(cuda().cuStreamBeginCapture(stream_, mode) == CUDA_SUCCESS);
    }
    ~Captured() {
        if (exec_) {
            cuda().cuGraphExecDestroy(exec_);
        }
        if (graph_) {
            cuda().cuGraphDestroy(graph_);
        }
    }
    void end() {
        REQUIRE(cuda().cuStreamEndCapture(stream_, &graph_) == CUDA_SUCCESS);
        if (announced_) {
            sim_.notice(stream_, EMM_STREAM_CAPTURE_ENDS);
        }
        REQUIRE(cuda().cuGraphInstantiate(&exec_, graph_, 0) == CUDA_SUCCESS);
    }
    void launch(CUstream stream) { REQUIRE(cuda().cuGraphLaunch(exec_, stream) == CUDA_SUCCESS); }

private:
    Simulation &sim_;
    CUstream stream_;
    bool announced_;
    CUgraph graph_ = nullptr;
    CUgraphExec exec_ = nullptr;
};

} // namespace

TEST_CASE("memory allocated and freed in a capture is the graph's while it lives, then all's") {
    for (const bool announced : {true, false}) {
        for (const size_t size : {4 * KiB, 3 * MiB}) {
            Simulation sim;
            const CUstream stream = sim.stream(announced), other = sim.stream();
            {
                Captured graph(sim, stream, announced);
                const CUdeviceptr a = sim.alloc(size, stream);
                sim.touch(a, size, stream);
                sim.free(a, stream);
                const CUdeviceptr b = sim.alloc(size, stream); // reused inside the capture
                CHECK(a == b);
                sim.touch(b, size, stream);
                sim.free(b, stream);
                graph.end();
                for (int i = 0; i < 4; i++) {
                    graph.launch(i % 2 ? stream : other);
                    sim.order(i % 2 ? stream : other, i % 2 ? other : stream);
                    const CUdeviceptr c = sim.alloc(size, other);
                    CHECK(c != a);
                    sim.touch(c, size, other);
                    sim.free(c, other);
                }
                CHECK(sim.stats().pending_bytes >= size);
            }
            synchronize(sim);
            sim.trim();
            sim.free(sim.alloc(size, unordered), unordered);
            synchronize(sim);
            sim.trim();
            CHECK(sim.stats().reserved_bytes == sim.held());
            CHECK(sim.races() == 0);
            pool().reset(sim.manager);
        }
    }
}

TEST_CASE("a graph that goes gives its memory back") {
    Simulation sim("max=16MiB");
    const CUstream stream = sim.stream();
    for (int i = 0; i < 5; i++) {
        Captured graph(sim, stream, true);
        const CUdeviceptr ptr = sim.alloc(12 * MiB, stream);
        sim.touch(ptr, 12 * MiB, stream);
        sim.free(ptr, stream);
        graph.end();
        graph.launch(stream);
        synchronize(sim); // allocation in a capture cannot wait
        CUdeviceptr none = 0;
        CHECK(sim.try_alloc(12 * MiB, stream, none) == EMM_E_OUT_OF_MEMORY);
    }
    const CUdeviceptr ptr = sim.alloc(12 * MiB, stream);
    sim.free(ptr, stream);
}

TEST_CASE("a block that outlives its capture is the graph's until the graph goes") {
    Simulation sim;
    const CUstream stream = sim.stream();
    CUdeviceptr output = 0, kept = 0;
    {
        Captured graph(sim, stream, true);
        output = sim.alloc(2 * MiB, stream);
        kept = sim.alloc(2 * MiB, stream);
        sim.touch(output, 2 * MiB, stream);
        sim.touch(kept, 2 * MiB, stream);
        graph.end();
        graph.launch(stream);
        CHECK(sim.free(output, stream) == EMM_OK);
        const CUdeviceptr other = sim.alloc(2 * MiB, stream);
        CHECK(other != output);
        sim.touch(other, 2 * MiB, stream);
        graph.launch(stream);
        sim.free(other, stream);
    }
    CHECK(sim.free(kept, stream) == EMM_OK);
    synchronize(sim);
    sim.free(sim.alloc(100, unordered), unordered);
    const CUdeviceptr a = sim.alloc(2 * MiB, unordered);
    const CUdeviceptr b = sim.alloc(2 * MiB, unordered);
    sim.touch(a, 2 * MiB, legacy);
    sim.touch(b, 2 * MiB, legacy);
    CHECK(sim.races() == 0);
}

TEST_CASE("an ordinary block freed in a capture is the graph's while it lives") {
    for (const size_t size : {4 * KiB, 3 * MiB}) {
        Simulation sim;
        const CUstream stream = sim.stream(), other = sim.stream();
        const CUdeviceptr ptr = sim.alloc(size, stream);
        sim.touch(ptr, size, stream);
        Captured graph(sim, stream, true);
        sim.touch(ptr, size, stream);
        CHECK(sim.free(ptr, stream) == EMM_OK);
        CHECK(sim.free(ptr, stream) == EMM_E_NOT_OWNED);
        graph.end();
        graph.launch(stream);
        for (const CUstream taker : {other, stream, unordered}) {
            const CUdeviceptr c = sim.alloc(size, taker);
            CHECK(c != ptr);
            sim.touch(c, size, taker == unordered ? other : taker);
        }
        graph.launch(stream);
        CHECK(sim.races() == 0);
    }
}

TEST_CASE("while a capture is announced nothing of ours invalidates it") {
    Simulation sim;
    const CUstream stream = sim.stream(), other = sim.stream(), raw = sim.stream(false);
    const uint64_t context_events = cuda().call_count("cuCtxRecordEvent");
    Captured graph(sim, stream, true);
    std::vector<CUdeviceptr> blocks;
    for (const CUstream user : {stream, other, raw, unordered, legacy}) {
        for (const size_t size : {KiB, 200 * KiB, 30 * MiB}) {
            for (int i = 0; i < 100; i++) {
                blocks.push_back(sim.alloc(size, user));
                if (blocks.size() > 3) {
                    CHECK(sim.free(blocks.front(), i % 2 ? user : unordered) == EMM_OK);
                    blocks.erase(blocks.begin());
                }
            }
        }
    }
    sim.trim();
    CHECK(cuda().call_count("cuCtxRecordEvent") == context_events);
    graph.end(); // fails if the capture has been invalidated
}

TEST_CASE("an unannounced capture survives ordinary traffic on other streams") {
    Simulation sim("max=256MiB");
    const CUstream raw = sim.stream(false);
    const CUstream others[] = {sim.stream(), sim.stream(false), legacy, per_thread};
    Captured graph(sim, raw, false);
    for (int i = 0; i < 400; i++) {
        for (const CUstream user : others) {
            const size_t size = size_t(i % 7 + 1) * 300 * KiB;
            const CUdeviceptr ptr = sim.alloc(size, user);
            CHECK(sim.free(ptr, user) == EMM_OK);
        }
    }
    const CUdeviceptr mine = sim.alloc(MiB, raw);
    sim.touch(mine, MiB, raw);
    sim.free(mine, raw);
    graph.end();
    graph.launch(raw);
}

TEST_CASE("a further use inside a capture holds the block until the graph goes") {
    Simulation sim;
    const CUstream stream = sim.stream(), other = sim.stream();
    const CUdeviceptr ptr = sim.alloc(2 * MiB, other);
    {
        Captured graph(sim, stream, true);
        CHECK(pool().record_use(sim.manager, ptr, 0, stream) == EMM_OK);
        sim.touch(ptr, 2 * MiB, stream);
        graph.end();
        graph.launch(stream);
        CHECK(sim.free(ptr, other) == EMM_OK);
        const CUdeviceptr next = sim.alloc(2 * MiB, other);
        CHECK(next != ptr);
        sim.touch(next, 2 * MiB, other);
        graph.launch(stream);
        CHECK(sim.stats().pending_bytes == 2 * MiB);
    }
    synchronize(sim);
    sim.free(sim.alloc(100, unordered), unordered);
    synchronize(sim);
    sim.trim();
    sim.alloc(MiB, unordered);
    CHECK(sim.stats().pending_bytes <= 512);
}

// Takes memory on `stream`: none of it may be memory that a live graph needs.
void expect_kept(Simulation &sim, CUdeviceptr ptr, size_t size, CUstream stream) {
    for (int i = 0; i < 3; i++) {
        const CUdeviceptr next = sim.alloc(size, stream);
        CHECK(next != ptr);
        sim.touch(next, size, stream);
    }
}

TEST_CASE("a graph keeps its memory although retaining it on the graph failed at first") {
    Simulation sim;
    const CUstream stream = sim.stream(), other = sim.stream();
    Captured graph(sim, stream, true);
    CUdeviceptr none = 0;
    REQUIRE(cuda().fail("cuGraphRetainUserObject@1:2") == CUDA_SUCCESS);
    CHECK(sim.try_alloc(3 * MiB, stream, none) < EMM_OK);
    cuda().fail(nullptr);
    const CUdeviceptr ptr = sim.alloc(3 * MiB, stream);
    sim.touch(ptr, 3 * MiB, stream);
    graph.end();
    graph.launch(stream);
    synchronize(sim);
    CHECK(sim.free(ptr, stream) == EMM_OK);
    synchronize(sim);
    sim.free(sim.alloc(4 * MiB, unordered), unordered);
    synchronize(sim);
    expect_kept(sim, ptr, 3 * MiB, other);
    graph.launch(stream);
    CHECK(sim.races() == 0);
}

namespace {

// A second thread's call in a capture, made while the first one waits for the answer about its
// graph.
struct Second {
    Simulation *sim = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr ptr = 0;
    std::atomic<bool> done{false};
    std::thread thread;
} second;

void start_second() {
    before_graph_retain = nullptr;
    second.thread = std::thread([] {
        second.sim->try_alloc(3 * MiB, second.stream, second.ptr);
        second.done = true;
    });
    // Its wait is not visible from outside, so a wrong thread gets time to show itself.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (!second.done && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
    }
    cuda().fail("cuGraphRetainUserObject@1:2"); // this call's
}

} // namespace

TEST_CASE("a second thread in a capture waits until its graph is known to say when it is gone") {
    Simulation sim;
    const CUstream stream = sim.stream(), other = sim.stream();
    {
        Captured graph(sim, stream, true, CU_STREAM_CAPTURE_MODE_RELAXED);
        second.sim = &sim;
        second.stream = stream;
        second.done = false;
        before_graph_retain = start_second;
        CUdeviceptr none = 0;
        CHECK(sim.try_alloc(3 * MiB, stream, none) < EMM_OK);
        second.thread.join();
        cuda().fail(nullptr);
        REQUIRE(second.ptr != 0);
        sim.touch(second.ptr, 3 * MiB, stream);
        graph.end();
        graph.launch(stream);
        CHECK(sim.free(second.ptr, stream) == EMM_OK);
        synchronize(sim);
        sim.free(sim.alloc(4 * MiB, unordered), unordered);
        synchronize(sim);
        expect_kept(sim, second.ptr, 3 * MiB, other);
        graph.launch(stream);
    }
    CHECK(sim.races() == 0);
}

namespace {

// Ends a capture and its graph in the middle of a call on its stream.
struct Ending {
    Simulation *sim = nullptr;
    CUstream stream = nullptr, other = nullptr;
} ending;

void end_capture_now() {
    before_mem_alloc = nullptr;
    CUgraph graph = nullptr;
    REQUIRE(cuda().cuStreamEndCapture(ending.stream, &graph) == CUDA_SUCCESS);
    REQUIRE(cuda().cuGraphDestroy(graph) == CUDA_SUCCESS);
    ending.sim->notice(ending.stream, EMM_STREAM_CAPTURE_ENDS);
    ending.sim->free(ending.sim->alloc(MiB, ending.other), ending.other); // hears of the graph
}

} // namespace

TEST_CASE("a call on a capturing stream outlives the capture that ends meanwhile") {
    Simulation sim;
    ending = {&sim, sim.stream(), sim.stream()};
    sim.free(sim.alloc(MiB, ending.other), ending.other);
    sim.notice(ending.stream, EMM_STREAM_CAPTURE_BEGINS);
    REQUIRE(cuda().cuStreamBeginCapture(ending.stream, CU_STREAM_CAPTURE_MODE_RELAXED) ==
            CUDA_SUCCESS);
    before_mem_alloc = end_capture_now;
    CUdeviceptr ptr = 0;
    const emm_status status = sim.try_alloc(30 * MiB, ending.stream, ptr);
    CHECK(before_mem_alloc.load() == nullptr);
    CHECK((status == EMM_OK || status == EMM_E_CAPTURING));
    if (status == EMM_OK) {
        sim.touch(ptr, 30 * MiB, ending.stream);
        CHECK(sim.free(ptr, ending.stream) == EMM_OK);
    }
    CHECK(sim.stats().live_count == 0); // and the invariants hold
    synchronize(sim);
    sim.free(sim.alloc(4 * MiB, unordered), unordered);
    synchronize(sim);
    sim.trim();
    CHECK(sim.held() == 0);
}

TEST_CASE("a stream that retires in its announced capture is like new when that has ended") {
    Simulation sim;
    const CUstream stream = sim.stream(), other = sim.stream();
    const CUdeviceptr pending = sim.alloc(1 * MiB, stream);
    sim.touch(pending, 1 * MiB, stream);
    sim.free(pending, stream);
    sim.notice(stream, EMM_STREAM_CAPTURE_BEGINS);
    sim.notice(stream, EMM_STREAM_RETIRING);
    sim.notice(stream, EMM_STREAM_CAPTURE_ENDS);
    sim.notice(stream, EMM_STREAM_REGISTERED);
    const CUdeviceptr ptr = sim.alloc(10 * MiB, stream);
    sim.touch(ptr, 10 * MiB, stream);
    sim.free(ptr, stream);
    CHECK(sim.alloc(10 * MiB, other) == ptr);
}

TEST_CASE("captures that come and go need no more memory than a few of them") {
    for (const char *growth : {"growth=segment", "growth=vmm"}) {
        Simulation sim(growth);
        const CUstream stream = sim.stream();
        for (int i = 0; i < 64; i++) {
            Captured graph(sim, stream, true);
            const CUdeviceptr ptr = sim.alloc(8 * MiB, stream);
            sim.touch(ptr, 8 * MiB, stream);
            CHECK(sim.free(ptr, stream) == EMM_OK);
            graph.end();
            graph.launch(stream);
            synchronize(sim);
        }
        CHECK(sim.held() <= 64 * MiB);
        synchronize(sim);
        sim.trim();
        CHECK(sim.held() == 0);
    }
}

TEST_CASE("the announcement of a capture leaves one that was not announced valid") {
    Simulation sim;
    const CUstream stream = sim.stream(), unregistered = sim.stream(false);
    sim.free(sim.alloc(MiB, unordered), unordered); // an event on the context would serve this
    {
        Captured graph(sim, stream, true);
        sim.free(sim.alloc(MiB, stream), stream);
        graph.end();
    }
    {
        Captured inside(sim, unregistered, false, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        Captured beside(sim, stream, true, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        sim.free(sim.alloc(MiB, stream), stream);
        beside.end();
        sim.free(sim.alloc(MiB, unregistered), unregistered);
        inside.end();
    }
}

TEST_CASE("memory that is complete before a capture serves it once the device is full") {
    for (const bool on_legacy : {false, true}) {
        Simulation sim("growth=vmm");
        const CUstream stream = sim.stream(), before = on_legacy ? legacy : stream;
        const CUdeviceptr freed = sim.alloc(5120 * MiB, before);
        sim.touch(freed, MiB, before);
        sim.free(freed, before);
        REQUIRE(cuda().cuStreamSynchronize(before) == CUDA_SUCCESS);
        Captured graph(sim, stream, true);
        CUdeviceptr ptr = 0;
        if (sim.try_alloc(5120 * MiB, stream, ptr) == EMM_OK) {
            sim.touch(ptr, 5120 * MiB, stream);
            sim.free(ptr, stream);
        } else {
            FAIL_CHECK("no memory; freed on the legacy stream: " << on_legacy);
        }
        graph.end();
    }
}

TEST_CASE("memory that is freed after its graph has gone serves the next capture on its stream") {
    Simulation sim("growth=vmm"); // of 8 GiB
    const CUstream stream = sim.stream();
    for (int i = 0; i < 10; i++) {
        CUdeviceptr ptr = 0;
        {
            Captured graph(sim, stream, true);
            REQUIRE(sim.try_alloc(1024 * MiB, stream, ptr) == EMM_OK);
            sim.touch(ptr, MiB, stream);
            graph.end();
            graph.launch(stream);
            synchronize(sim);
        }
        CHECK(sim.free(ptr, stream) == EMM_OK);
    }
    CHECK(sim.held() <= 3072 * MiB);
}

TEST_CASE("two unregistered streams of one capture share no memory without a join") {
    Simulation sim;
    const CUstream first = sim.stream(false), second = sim.stream(false);
    Captured graph(sim, first, false);
    sim.order(first, second); // the fork
    const CUdeviceptr freed = sim.alloc(MiB, first);
    sim.touch(freed, MiB, first);
    CHECK(sim.free(freed, first) == EMM_OK);
    const CUdeviceptr other = sim.alloc(MiB, second);
    CHECK(other != freed);
    CHECK(sim.free(other, second) == EMM_OK);
    sim.order(second, first);
    graph.end();
}

TEST_CASE(
    "the legacy stream's memory is looked after without harm to a blocking stream's capture") {
    Simulation sim("max=32MiB");
    CUstream blocking = nullptr;
    REQUIRE(cuda().cuStreamCreate(&blocking, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    const CUdeviceptr freed = sim.alloc(32 * MiB, legacy);
    sim.touch(freed, 32 * MiB, legacy);
    const CUstream other = sim.stream();
    {
        Captured graph(sim, blocking, false);
        CHECK(sim.free(freed, legacy) == EMM_OK);
        CUdeviceptr ptr = 0;
        if (sim.try_alloc(32 * MiB, other, ptr) == EMM_OK) {
            sim.free(ptr, other);
        }
        graph.end(); // fails if the capture was invalidated
    }
    cuda().cuStreamDestroy(blocking);
}
