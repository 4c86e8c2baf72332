#include "simulation.h"

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

void settle(Simulation &sim) {
    cuda().cuCtxPushCurrent(sim.context);
    cuda().cuCtxSynchronize();
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
}

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
            settle(sim);
            sim.trim();
            sim.free(sim.alloc(size, unordered), unordered);
            settle(sim);
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
        settle(sim); // allocation in a capture cannot wait
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
    settle(sim);
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

TEST_CASE("a capture that nobody announced survives ordinary traffic on other streams") {
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
    settle(sim);
    sim.free(sim.alloc(100, unordered), unordered);
    settle(sim);
    sim.trim();
    sim.alloc(MiB, unordered);
    CHECK(sim.stats().pending_bytes <= 512);
}
