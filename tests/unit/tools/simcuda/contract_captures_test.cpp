// Behaviour: CUDA's promises about captures and graphs: the same on real hardware and simulated.
#include "captures.h"
#include "pending_work.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace {

void end_invalid(CUstream stream) {
    CUgraph graph = nullptr;
    CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK(cu().cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == nullptr);
    CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
}

// The answer of cuMemAlloc now. Its memory is freed once nothing captures.
CUresult try_alloc(CUdeviceptr &address) {
    return cu().cuMemAlloc(&address, 1 << 20);
}

void count(void *number) {
    ++*static_cast<int *>(number);
}

} // namespace

TEST_CASE("captured work runs at each launch, and not before") {
    const Device device;
    const Stream stream;
    const Block block(4096);
    int runs = 0;
    REQUIRE(cu().cuMemsetD8(block, 1, 4096) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxSynchronize() == CUDA_SUCCESS);
    begin(stream);
    REQUIRE(cu().cuMemsetD8Async(block, 2, 4096, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuLaunchHostFunc(stream, count, &runs) == CUDA_SUCCESS);
    const CUgraph graph = end(stream);
    size_t nodes = 0;
    CHECK(cu().cuGraphGetNodes(graph, nullptr, &nodes) == CUDA_SUCCESS);
    CHECK(nodes == 2);
    CHECK(byte_at(block) == 1);
    const CUgraphExec executable = instantiate(graph);
    REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(byte_at(block) == 2);
    CHECK(runs == 2);
    REQUIRE(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
}

TEST_CASE("an allocation under a global capture fails and invalidates it") {
    const Device device;
    const Stream stream;
    CUdeviceptr address = 0;
    begin(stream);
    CHECK(try_alloc(address) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
}

TEST_CASE("another thread's allocation invalidates a global capture, not a thread-local one") {
    const Device device;
    const Stream global, local;
    const auto elsewhere = [&] {
        CUdeviceptr address = 0;
        CUresult result = CUDA_ERROR_UNKNOWN;
        std::thread([&] {
            cu().cuCtxSetCurrent(device.context);
            result = try_alloc(address);
            if (result == CUDA_SUCCESS) {
                CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
                cu().cuThreadExchangeStreamCaptureMode(&relaxed);
                cu().cuMemFree(address);
            }
        }).join();
        return result;
    };
    begin(local, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CHECK(elsewhere() == CUDA_SUCCESS);
    CHECK(cu().cuGraphDestroy(end(local)) == CUDA_SUCCESS);
    begin(global);
    CHECK(elsewhere() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(global);
}

TEST_CASE("an allocation under a relaxed capture works") {
    const Device device;
    const Stream stream;
    CUdeviceptr address = 0;
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(try_alloc(address) == CUDA_SUCCESS);
    CHECK(cu().cuGraphDestroy(end(stream)) == CUDA_SUCCESS);
    CHECK(cu().cuMemFree(address) == CUDA_SUCCESS);
}

TEST_CASE("an allocation works with the thread's mode exchanged for relaxed") {
    const Device device;
    const Stream stream;
    CUdeviceptr address = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    begin(stream);
    REQUIRE(cu().cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK(try_alloc(address) == CUDA_SUCCESS);
    REQUIRE(cu().cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(cu().cuGraphDestroy(end(stream)) == CUDA_SUCCESS);
    CHECK(cu().cuMemFree(address) == CUDA_SUCCESS);
}

TEST_CASE("a context's event cannot be recorded during a capture, and invalidates it") {
    if (!cu().record_context) {
        WARN("skipped: this driver has no cuCtxRecordEvent");
        return;
    }
    const Device device;
    const Stream stream;
    const Event event;
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(cu().record_context(device.context, event) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
}

TEST_CASE("asking about an event invalidates a global capture, and harms no relaxed one") {
    const Device device;
    const Stream stream, other;
    const Event event;
    REQUIRE(cu().cuEventRecord(event, other) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(other) == CUDA_SUCCESS);
    begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(cu().cuEventQuery(event) == CUDA_SUCCESS);
    CHECK(cu().cuGraphDestroy(end(stream)) == CUDA_SUCCESS);
    begin(stream);
    CHECK(cu().cuEventQuery(event) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
}

TEST_CASE("asking about an event works with the thread's mode exchanged for relaxed") {
    const Device device;
    const Stream stream, other;
    const Event event;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    REQUIRE(cu().cuEventRecord(event, other) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(other) == CUDA_SUCCESS);
    begin(stream);
    REQUIRE(cu().cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(cu().cuEventQuery(event) == CUDA_SUCCESS);
    REQUIRE(cu().cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    CHECK(cu().cuGraphDestroy(end(stream)) == CUDA_SUCCESS);
}

TEST_CASE("an event recorded in a capture cannot be asked about, and brings streams in") {
    const Device device;
    const Stream stream, other;
    const Event fork, join;
    begin(stream);
    REQUIRE(cu().cuEventRecord(fork, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamWaitEvent(other, fork, 0) == CUDA_SUCCESS);
    CHECK(status_of(other) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    REQUIRE(cu().cuEventRecord(join, other) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamWaitEvent(stream, join, 0) == CUDA_SUCCESS);
    CHECK(cu().cuGraphDestroy(end(stream)) == CUDA_SUCCESS);
    CHECK(status_of(other) == CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(cu().cuEventQuery(fork) != CUDA_SUCCESS);
}

TEST_CASE("a capture whose other stream was not joined yields no graph") {
    const Device device;
    const Stream stream, other;
    const Event fork;
    const Block block(4096);
    CUgraph graph = nullptr;
    begin(stream);
    REQUIRE(cu().cuEventRecord(fork, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamWaitEvent(other, fork, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemsetD8Async(block, 1, 16, other) == CUDA_SUCCESS);
    CHECK(cu().cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    CHECK(graph == nullptr);
    CHECK(status_of(other) == CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_CASE("a captured stream cannot be waited for") {
    const Device device;
    const Stream stream;
    begin(stream);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
}

TEST_CASE("the legacy stream is refused while a blocking stream captures") {
    const Device device;
    const Stream stream(CU_STREAM_DEFAULT);
    const Block block(4096);
    begin(stream);
    CHECK(cu().cuMemsetD8Async(block, 1, 16, nullptr) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    end_invalid(stream);
    begin(stream);
    CHECK(cu().cuEventRecord(Event(), nullptr) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    end_invalid(stream);
}

TEST_CASE("who asks for the legacy stream's context invalidates what a blocking stream captures") {
    const Device device;
    const Stream stream(CU_STREAM_DEFAULT);
    CUcontext context = nullptr;
    begin(stream);
    CHECK(cu().cuStreamGetCtx(stream, &context) == CUDA_SUCCESS);
    CHECK(cu().cuStreamGetCtx(nullptr, &context) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK(cu().cuStreamGetCtx(stream, &context) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end_invalid(stream);
}

TEST_CASE("the legacy stream cannot be captured") {
    const Device device;
    CHECK(cu().cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED) ==
          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_CASE("what a graph retains is destroyed after the last that holds it") {
    const Device device;
    const Stream stream;
    static std::atomic<int> destroyed;
    const auto destroy = [](void *) { ++destroyed; };
    destroyed = 0;
    begin(stream);
    const CUgraph graph = end(stream);
    retain(graph, destroy);
    const CUgraphExec executable = instantiate(graph);
    REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHECK(destroyed == 0);
    REQUIRE(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxSynchronize() == CUDA_SUCCESS);
    await_at_least(1, destroyed);
    CHECK(destroyed == 1);
}

TEST_CASE("what a graph retains is not destroyed before its last run is over") {
    const Device device;
    const Stream stream;
    static std::atomic<int> runs, runs_before_the_end;
    const auto run = [](void *) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        ++runs;
    };
    const auto destroy = [](void *) { runs_before_the_end = runs.load(); };
    for (const bool graph_goes_first : {true, false}) {
        runs = 0;
        runs_before_the_end = -1;
        begin(stream);
        REQUIRE(cu().cuLaunchHostFunc(stream, run, nullptr) == CUDA_SUCCESS);
        const CUgraph graph = end(stream);
        retain(graph, destroy);
        const CUgraphExec executable = instantiate(graph);
        if (graph_goes_first) {
            REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
        }
        REQUIRE(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
        REQUIRE(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
        REQUIRE(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
        if (!graph_goes_first) {
            REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
        }
        REQUIRE(cu().cuCtxSynchronize() == CUDA_SUCCESS);
        await_at_least(0, runs_before_the_end);
        CHECK(runs_before_the_end == 2);
    }
}

TEST_CASE("a stream's work is waited for behind a graph that has nothing to do") {
    const PendingWork nothing_runs_before_a_wait;
    const Device device;
    const Stream stream;
    static std::atomic<int> runs;
    CUgraph graph = nullptr;
    runs = 0;
    REQUIRE(cu().cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    const CUgraphExec executable = instantiate(graph);
    REQUIRE(cu().cuLaunchHostFunc(
                stream, [](void *) { ++runs; }, nullptr) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(runs == 1);
    REQUIRE(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
}

TEST_CASE("freeing memory under a global capture fails and invalidates it") {
    const Device device;
    const Stream stream;
    CUdeviceptr address = 0;
    REQUIRE(try_alloc(address) == CUDA_SUCCESS);
    begin(stream);
    CHECK(cu().cuMemFree(address) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
    CHECK(cu().cuMemFree(address) == CUDA_SUCCESS);
}

TEST_CASE("pinned memory cannot be had under a global capture") {
    const Device device;
    const Stream stream;
    void *host = nullptr;
    begin(stream);
    CHECK(cu().cuMemHostAlloc(&host, 4096, 0) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
}

TEST_CASE("waiting for another stream invalidates a global capture") {
    const Device device;
    const Stream stream, other;
    begin(stream);
    CHECK(cu().cuStreamSynchronize(other) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
}

TEST_CASE("the context cannot be waited for during a capture") {
    const Device device;
    const Stream stream;
    begin(stream);
    CHECK(cu().cuCtxSynchronize() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
}

TEST_CASE("pool memory for another stream cannot be had under a global capture") {
    const Device device;
    const Stream stream, other;
    CUdeviceptr address = 0;
    begin(stream);
    CHECK(cu().cuMemAllocAsync(&address, 4096, other) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(stream);
}

namespace {

using BeginCaptureToGraph = CUresult (*)(CUstream, CUgraph, const CUgraphNode *, const void *,
                                         size_t, CUstreamCaptureMode);

BeginCaptureToGraph capture_to_graph() {
    const auto found = cu().optional<BeginCaptureToGraph>("cuStreamBeginCaptureToGraph", 12030);
    if (!found) {
        WARN("skipped: this driver has no cuStreamBeginCaptureToGraph");
    }
    return found;
}

size_t nodes_of(CUgraph graph) {
    size_t count = 0;
    REQUIRE(cu().cuGraphGetNodes(graph, nullptr, &count) == CUDA_SUCCESS);
    return count;
}

CUgraphNode first_node(CUgraph graph) {
    CUgraphNode node = nullptr;
    size_t count = 1;
    REQUIRE(cu().cuGraphGetNodes(graph, &node, &count) == CUDA_SUCCESS);
    return node;
}

} // namespace

TEST_CASE("captures into a graph of the program's add to it, after the nodes that are named") {
    const BeginCaptureToGraph begin_into = capture_to_graph();
    if (!begin_into) {
        return;
    }
    const Device device;
    const Stream stream;
    const Block block(4096);
    CUgraph graph = nullptr;
    REQUIRE(cu().cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    REQUIRE(begin_into(stream, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
            CUDA_SUCCESS);
    REQUIRE(cu().cuMemsetD8Async(block, 1, 4096, stream) == CUDA_SUCCESS);
    CHECK(end(stream) == graph);
    CHECK(nodes_of(graph) == 1);
    const CUgraphNode first = first_node(graph);
    REQUIRE(begin_into(stream, graph, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
            CUDA_SUCCESS);
    REQUIRE(cu().cuMemsetD8Async(block, 2, 4096, stream) == CUDA_SUCCESS);
    CHECK(end(stream) == graph);
    CHECK(nodes_of(graph) == 2);
    const CUgraphExec executable = instantiate(graph);
    REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(byte_at(block) == 2);
    REQUIRE(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
}

TEST_CASE("a capture into a graph after a node of another graph is refused") {
    const BeginCaptureToGraph begin_into = capture_to_graph();
    if (!begin_into) {
        return;
    }
    const Device device;
    const Stream stream;
    const Block block(4096);
    CUgraph empty = nullptr;
    REQUIRE(cu().cuGraphCreate(&empty, 0) == CUDA_SUCCESS);
    begin(stream);
    REQUIRE(cu().cuMemsetD8Async(block, 1, 4096, stream) == CUDA_SUCCESS);
    const CUgraph other = end(stream);
    const CUgraphNode node = first_node(other);
    CHECK(begin_into(stream, empty, &node, nullptr, 1, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(begin_into(stream, empty, nullptr, nullptr, 1, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(cu().cuGraphDestroy(other) == CUDA_SUCCESS);
    CHECK(cu().cuGraphDestroy(empty) == CUDA_SUCCESS);
}

TEST_CASE(
    "a graph cannot be instantiated while a stream captures into it, and that capture fails") {
    const BeginCaptureToGraph begin_into = capture_to_graph();
    if (!begin_into) {
        return;
    }
    const Device device;
    const Stream stream;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    REQUIRE(cu().cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    REQUIRE(begin_into(stream, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
            CUDA_SUCCESS);
    CHECK(cu().cuGraphInstantiate(&executable, graph, 0) != CUDA_SUCCESS);
    end_invalid(stream);
}

TEST_CASE("a graph of the program's goes with a capture into it that was invalidated") {
    const BeginCaptureToGraph begin_into = capture_to_graph();
    if (!begin_into) {
        return;
    }
    const Device device;
    const Stream stream;
    static std::atomic<int> destroyed;
    CUgraph graph = nullptr;
    CUdeviceptr address = 0;
    destroyed = 0;
    REQUIRE(cu().cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    retain(graph, [](void *) { ++destroyed; });
    REQUIRE(begin_into(stream, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
            CUDA_SUCCESS);
    CHECK(try_alloc(address) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(destroyed == 0);
    end_invalid(stream);
    await_at_least(1, destroyed);
    CHECK(destroyed == 1);
}

TEST_CASE("a graph with memory of its own may go while it runs") {
    const Device device;
    const Stream stream;
    CUdeviceptr address = 0;
    begin(stream);
    REQUIRE(cu().cuMemAllocAsync(&address, 4096, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemsetD8Async(address, 1, 4096, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
    const CUgraph graph = end(stream);
    const CUgraphExec executable = instantiate(graph);
    REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    CHECK(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
}
