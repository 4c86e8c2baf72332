#include "cases.h"
#include "objects.h"

namespace {

class Executable {
public:
    explicit Executable(CUgraph graph, unsigned long long flags = 0) {
        NEED(cu.cuGraphInstantiateWithFlags(&handle_, graph, flags));
        NEED(cu.cuGraphDestroy(graph));
    }
    ~Executable() { cu.cuGraphExecDestroy(handle_); }
    Executable(const Executable &) = delete;
    Executable &operator=(const Executable &) = delete;
    void launch(CUstream stream) const { NEED(cu.cuGraphLaunch(handle_, stream)); }
    operator CUgraphExec() const { return handle_; }

private:
    CUgraphExec handle_ = nullptr;
};

CUgraph end_capture(CUstream stream) {
    CUgraph graph = nullptr;
    NEED(cu.cuStreamEndCapture(stream, &graph));
    return graph;
}

void copy(CUdeviceptr to, CUdeviceptr from, CUstream stream) {
    NEED(cu.cuMemcpyDtoDAsync(to, from, mib, stream));
}

void launched(const Executable &executable, CUdeviceptr out, unsigned value, CUstream stream,
              const char *name) {
    for (const char *which : {"first", "second"}) {
        NEED(fill(out, mib, 0, stream));
        executable.launch(stream);
        fact(holds(out, mib, value, stream), "%s, %s launch: bytes ok", name, which);
    }
}

// Memory that the graph takes and gives back in every launch.
void inside(CUdeviceptr out, CUstream stream, CUstreamCaptureMode mode, const char *name) {
    NEED(cu.cuStreamBeginCapture(stream, mode));
    fact(status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "%s: the stream captures", name);
    const CUdeviceptr address = allocate_async(mib, stream);
    NEED(fill(address, mib, 71, stream));
    copy(out, address, stream);
    NEED(cu.cuMemFreeAsync(address, stream));
    const Executable executable(end_capture(stream));
    fact(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE, "%s: and no longer", name);
    launched(executable, out, 71, stream, name);
}

// A stream that joins because it waits for an event, and that has memory of its own in the capture.
void joined(CUdeviceptr out, CUstream stream, CUstream other) {
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    order(stream, other);
    fact(status_of(other) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "joined: it captures too");
    const CUdeviceptr address = allocate_async(mib, other);
    NEED(fill(address, mib, 72, other));
    copy(out, address, other);
    NEED(cu.cuMemFreeAsync(address, other));
    order(other, stream);
    const Executable executable(end_capture(stream));
    fact(status_of(other) == CU_STREAM_CAPTURE_STATUS_NONE, "joined: and no longer");
    launched(executable, out, 72, stream, "joined");
}

// Memory that a launch leaves to the program, which frees it before the next launch.
void freed_outside(CUdeviceptr out, CUstream stream) {
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    const CUdeviceptr address = allocate_async(mib, stream);
    NEED(fill(address, mib, 73, stream));
    const Executable executable(end_capture(stream));
    for (const char *which : {"first", "second"}) {
        executable.launch(stream);
        copy(out, address, stream);
        fact(holds(out, mib, 73, stream), "freed outside, %s launch: bytes ok", which);
        result(cu.cuMemFreeAsync(address, stream), CUDA_SUCCESS, "freed outside, %s time", which);
    }
    const CUdeviceptr next = allocate_async(mib, stream);
    NEED(fill(next, mib, 74, stream));
    NEED(fill(out, mib, 75, stream));
    fact(holds(next, mib, 74, stream), "memory taken after that: bytes ok");
    NEED(cu.cuMemFreeAsync(next, stream));
}

// Memory that the last launch leaves to the program, whose graph is gone; other memory is taken and
// written meanwhile.
void freed_after_the_end(CUdeviceptr out, CUstream stream) {
    CUdeviceptr address = 0;
    {
        NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        address = allocate_async(mib, stream);
        NEED(fill(address, mib, 79, stream));
        const Executable executable(end_capture(stream));
        executable.launch(stream);
        NEED(cu.cuMemFreeAsync(address, stream));
        executable.launch(stream);
    }
    NEED(cu.cuStreamSynchronize(stream));
    const CUdeviceptr next = allocate_async(mib, stream);
    NEED(fill(next, mib, 80, stream));
    copy(out, address, stream);
    fact(holds(out, mib, 79, stream), "after the graph's end: bytes ok");
    fact(is_known(address), "after the graph's end: the address is known");
    result(cu.cuMemFreeAsync(address, stream), CUDA_SUCCESS, "free after the graph's end");
    NEED(cu.cuMemFreeAsync(next, stream));
}

// Freed by another graph, which the program launches in between.
void freed_by_a_graph(CUdeviceptr out, CUstream stream) {
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    const CUdeviceptr address = allocate_async(mib, stream);
    NEED(fill(address, mib, 81, stream));
    const Executable takes(end_capture(stream));
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    copy(out, address, stream);
    result(cu.cuMemFreeAsync(address, stream), CUDA_SUCCESS, "free in another graph");
    const Executable frees(end_capture(stream));
    for (const char *which : {"first", "second"}) {
        NEED(fill(out, mib, 0, stream));
        takes.launch(stream);
        frees.launch(stream);
        fact(holds(out, mib, 81, stream), "freed by a graph, %s launch: bytes ok", which);
    }
    const CUdeviceptr next = allocate_async(mib, stream);
    NEED(fill(next, mib, 82, stream));
    takes.launch(stream);
    fact(holds(next, mib, 82, stream), "memory taken after that, and a launch: bytes ok");
    frees.launch(stream);
    NEED(cu.cuMemFreeAsync(next, stream));
}

// A graph that leaves memory with `value` in it to the program.
CUgraph leaving(CUdeviceptr &ret_address, unsigned value, CUstream stream) {
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ret_address = allocate_async(mib, stream);
    NEED(fill(ret_address, mib, value, stream));
    return end_capture(stream);
}

// Blocks that take an allocator's free memory, written.
struct Others {
    explicit Others(CUstream its_stream) : stream(its_stream) {
        for (CUdeviceptr &block : blocks) {
            block = allocate_async(mib, stream);
            NEED(fill(block, mib, 99, stream));
        }
    }
    ~Others() {
        for (const CUdeviceptr block : blocks) {
            cu.cuMemFreeAsync(block, stream);
        }
    }
    Others(const Others &) = delete;
    CUstream stream;
    CUdeviceptr blocks[4];
};

// The graph was updated from another graph. Its launches leave that graph's memory, and keep it.
void updated(CUstream stream) {
    CUdeviceptr first = 0, second = 0;
    CUgraphExecUpdateResultInfo info = {};
    {
        const Executable executable(leaving(first, 83, stream));
        const CUgraph graph = leaving(second, 84, stream);
        executable.launch(stream);
        result(cu.cuGraphExecUpdate(executable, graph, &info), CUDA_SUCCESS, "an update");
        NEED(cu.cuGraphDestroy(graph));
        {
            const Others others(stream);
            executable.launch(stream);
            fact(holds(first, mib, 83, stream), "updated: what was left before: bytes ok");
        }
        result(cu.cuMemFreeAsync(second, stream), CUDA_SUCCESS, "updated: free between launches");
        executable.launch(stream);
        NEED(cu.cuStreamSynchronize(stream));
    }
    const Others others(stream);
    fact(holds(first, mib, 83, stream), "updated, after the end: what was left before: bytes ok");
    fact(holds(second, mib, 84, stream), "updated, after the end: bytes ok");
    result(cu.cuMemFreeAsync(first, stream), CUDA_SUCCESS, "updated: the first free");
    result(cu.cuMemFreeAsync(second, stream), CUDA_SUCCESS, "updated: the second free");
}

// An update from a graph that frees other memory.
void updated_to_free(CUstream stream) {
    CUdeviceptr first = 0, second = 0;
    CUgraphExecUpdateResultInfo info = {};
    const Executable takes_first(leaving(first, 85, stream)),
        takes_second(leaving(second, 86, stream));
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    NEED(cu.cuMemFreeAsync(first, stream));
    const Executable frees(end_capture(stream));
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    NEED(cu.cuMemFreeAsync(second, stream));
    const CUgraph graph = end_capture(stream);
    takes_first.launch(stream);
    takes_second.launch(stream);
    result(cu.cuGraphExecUpdate(frees, graph, &info), CUDA_SUCCESS, "an update of a free");
    NEED(cu.cuGraphDestroy(graph));
    frees.launch(stream);
    result(cu.cuGraphLaunch(takes_first, stream), CUDA_ERROR_INVALID_VALUE,
           "launch of what was not freed");
    takes_second.launch(stream);
    result(cu.cuMemFreeAsync(first, stream), CUDA_SUCCESS, "free of what was not freed");
    result(cu.cuMemFreeAsync(second, stream), CUDA_SUCCESS, "free of what was freed and left");
}

// Launches again while the program has the memory, or before it has got the memory that the graph
// frees.
void launched_again(CUstream stream) {
    CUdeviceptr address = 0, again = 0;
    {
        const Executable executable(leaving(address, 87, stream));
        NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        NEED(cu.cuMemFreeAsync(address, stream));
        const Executable frees(end_capture(stream));
        result(cu.cuGraphLaunch(frees, stream), CUDA_ERROR_INVALID_VALUE,
               "launch that frees what no launch has left");
        executable.launch(stream);
        result(cu.cuGraphLaunch(executable, stream), CUDA_ERROR_INVALID_VALUE,
               "launch with the memory not freed");
        fact(holds(address, mib, 87, stream), "and the memory is as it was");
        frees.launch(stream);
        result(cu.cuGraphLaunch(frees, stream), CUDA_ERROR_INVALID_VALUE,
               "launch that frees twice");
        executable.launch(stream);
        NEED(cu.cuMemFreeAsync(address, stream));
    }
    const Executable executable(leaving(again, 88, stream),
                                CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    executable.launch(stream);
    result(cu.cuGraphLaunch(executable, stream), CUDA_SUCCESS, "launch that frees what was left");
    fact(holds(again, mib, 88, stream), "and leaves it again: bytes ok");
    result(cu.cuMemFreeAsync(again, stream), CUDA_SUCCESS, "its free");
}

// A node that the program adds itself, and that frees captured memory.
void freed_by_a_node(CUdeviceptr out, CUstream stream) {
    CUdeviceptr address = 0;
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    size_t count = 0;
    const Executable takes(leaving(address, 89, stream));
    NEED(cu.cuGraphCreate(&graph, 0));
    result(cu.cuGraphAddMemFreeNode(&node, graph, nullptr, 0, address), CUDA_SUCCESS,
           "a node that frees captured memory");
    NEED(cu.cuGraphGetNodes(graph, nullptr, &count));
    fact(count == 1, "it is the graph's only node");
    result(cu.cuGraphAddMemFreeNode(&node, graph, &node, 1, address), CUDA_ERROR_INVALID_VALUE,
           "a second one");
    result(cu.cuGraphAddMemFreeNode(&node, graph, &node, 1, address + 256),
           CUDA_ERROR_INVALID_VALUE, "one of an address inside");
    result(cu.cuGraphAddMemFreeNode(&node, graph, &node, 1, out), CUDA_ERROR_INVALID_VALUE,
           "one of cuMemAlloc's memory");
    const Executable frees(graph);
    for (const char *which : {"first", "second"}) {
        takes.launch(stream);
        copy(out, address, stream);
        result(cu.cuGraphLaunch(frees, stream), CUDA_SUCCESS, "%s launch of it", which);
        fact(holds(out, mib, 89, stream), "freed by a node, %s launch: bytes ok", which);
    }
    const CUgraph own = leaving(address, 90, stream);
    CUgraphNode nodes[2] = {};
    count = 2;
    NEED(cu.cuGraphGetNodes(own, nodes, &count));
    NEED(cu.cuGraphAddMemFreeNode(&node, own, &nodes[count - 1], 1, address));
    const Executable frees_own(own);
    frees_own.launch(stream);
    result(cu.cuGraphLaunch(frees_own, stream), CUDA_SUCCESS,
           "second launch of a graph with a node that frees its own memory");
}

// A capture ended with its origin. The next graph may get the handle of its graph.
void freed_by_a_node_after_a_lost_capture(CUstream stream) {
    CUstream origin = nullptr;
    CUdeviceptr address = 0, inside = 0;
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    const Executable takes(leaving(address, 92, stream));
    NEED(cu.cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    NEED(cu.cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
    NEED(cu.cuMemAllocAsync(&inside, mib, origin));
    NEED(cu.cuMemFreeAsync(inside, origin));
    NEED(cu.cuStreamDestroy(origin));
    NEED(cu.cuGraphCreate(&graph, 0));
    NEED(cu.cuGraphAddMemFreeNode(&node, graph, nullptr, 0, address));
    const Executable frees(graph);
    result(cu.cuGraphLaunch(frees, stream), CUDA_ERROR_INVALID_VALUE,
           "after a lost capture, a launch that frees what no launch has left");
    takes.launch(stream);
    result(cu.cuGraphLaunch(frees, stream), CUDA_SUCCESS,
           "after a lost capture, one that frees what a launch has left");
}

// An allocation that fails leaves no node.
void failed(CUstream stream) {
    CUdeviceptr address = 0;
    CUgraph graph = nullptr, clone = nullptr;
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    result(cu.cuMemAllocAsync(&address, size_t(1) << 50, stream), CUDA_ERROR_OUT_OF_MEMORY,
           "1 PiB in a capture");
    NEED(cu.cuStreamEndCapture(stream, &graph));
    result(cu.cuGraphClone(&clone, graph), CUDA_SUCCESS, "clone of one without memory");
    NEED(cu.cuGraphDestroy(clone));
    NEED(cu.cuGraphDestroy(graph));
}

// CUDA refuses these operations on a graph that has nodes for memory.
void refused_with_memory(CUstream stream) {
    CUdeviceptr address = 0;
    CUgraph clone = nullptr;
    const CUgraph graph = leaving(address, 91, stream);
    result(cu.cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED, "clone of one that leaves");
    const Executable executable(graph);
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    result(cu.cuGraphLaunch(executable, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
           "captured launch of one that leaves");
    fact(status_of(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED, "and the capture is invalid");
    result(cu.cuStreamEndCapture(stream, &clone), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
           "the end of that capture");
    executable.launch(stream);
    result(cu.cuMemFreeAsync(address, stream), CUDA_SUCCESS, "free after a launch of it");
}

// The caller's own memory, which its graphs go on using.
void made_before(CUstream stream) {
    const CUdeviceptr out = allocate(mib), taken = allocate_async(mib, stream);
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    NEED(fill(taken, mib, 76, stream));
    copy(out, taken, stream);
    const Executable executable(end_capture(stream));
    launched(executable, out, 76, stream, "memory of before");
    NEED(cu.cuMemFreeAsync(taken, stream));
    NEED(cu.cuMemFree(out));
}

void relaxed(CUstream stream) {
    CUdeviceptr address = 0;
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    result(cu.cuMemAlloc(&address, mib), CUDA_SUCCESS, "cuMemAlloc under a relaxed capture");
    NEED(fill(address, mib, 77, stream));
    const Executable executable(end_capture(stream));
    executable.launch(stream);
    fact(holds(address, mib, 77, stream), "its bytes after a launch: ok");
    result(cu.cuMemFree(address), CUDA_SUCCESS, "its free");
}

void exchanged(CUstream stream) {
    CUdeviceptr address = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    NEED(cu.cuThreadExchangeStreamCaptureMode(&mode));
    result(cu.cuMemAlloc(&address, mib), CUDA_SUCCESS, "cuMemAlloc in a thread that is relaxed");
    NEED(cu.cuThreadExchangeStreamCaptureMode(&mode));
    fact(mode == CU_STREAM_CAPTURE_MODE_RELAXED, "the thread's mode is its own again");
    NEED(cu.cuGraphDestroy(end_capture(stream)));
    result(cu.cuMemFree(address), CUDA_SUCCESS, "the free after the capture");
}

void to_graph(CUdeviceptr out, CUstream stream) {
    CUgraph graph = nullptr;
    NEED(cu.cuGraphCreate(&graph, 0));
    NEED(cu.cuStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0,
                                        CU_STREAM_CAPTURE_MODE_GLOBAL));
    const CUdeviceptr address = allocate_async(mib, stream);
    NEED(fill(address, mib, 78, stream));
    copy(out, address, stream);
    NEED(cu.cuMemFreeAsync(address, stream));
    fact(end_capture(stream) == graph, "to a graph: the capture ends with that graph");
    const Executable executable(graph);
    launched(executable, out, 78, stream, "to a graph");
}

} // namespace

void capture_case() {
    const Primary primary;
    const CUdeviceptr out = allocate(mib);
    {
        const Stream stream, other;
        inside(out, stream, CU_STREAM_CAPTURE_MODE_GLOBAL, "global");
        inside(out, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "thread-local");
        inside(out, stream, CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed");
        inside(out, CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL, "the thread's stream");
        joined(out, stream, other);
        freed_outside(out, stream);
        freed_after_the_end(out, stream);
        freed_by_a_graph(out, stream);
        updated(stream);
        updated_to_free(stream);
        launched_again(stream);
        freed_by_a_node(out, stream);
        freed_by_a_node_after_a_lost_capture(stream);
        failed(stream);
        refused_with_memory(stream);
        made_before(stream);
        relaxed(stream);
        exchanged(stream);
        to_graph(out, stream);
    }
    result(cu.cuMemFree(out), CUDA_SUCCESS, "free after all captures");
}
