// Captures and what they make. While a thread captures it makes no call that a capture forbids;
// other threads go on as ever.
#include "worker.h"

// Allocates and frees inside, writes a block of the thread's, and may leave memory to whom launches
// it. Only streams that the legacy stream does not wait for: other threads use that one.
void Worker::capture() {
    const Stream &stream = mine_->streams[below(own_streams)];
    if (stream.blocking || mine_->graphs.size() == most_graphs || world_.settings.captures == 0) {
        return;
    }
    Block block, left;
    block.place = place_;
    block.size = chance_.size();
    block.stream = stream.handle;
    block.kind = chance_.one_in(2) ? Kind::plain : Kind::ordered;
    check(allocate_as(block), "an allocation");
    begin_capture(stream.handle);
    capture_inside(stream.handle);
    if (chance_.one_in(2)) {
        capture_joined(stream.handle);
    }
    use(block, stream.handle);
    const unsigned leaves = block.pattern;
    if (world_.settings.captures == 2 && chance_.one_in(2)) {
        left = allocate_in_capture(stream.handle);
    }
    mine_->graphs.push_back(end_capture(stream.handle, block, leaves, left));
}

void Worker::begin_capture(CUstream stream) {
    const bool relaxed = chance_.one_in(2);
    const auto mode =
        relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    if (chance_.one_in(2)) {
        check(cu.cuStreamBeginCapture(stream, mode), "cuStreamBeginCapture");
    } else {
        CUgraph graph = nullptr;
        check(cu.cuGraphCreate(&graph, 0), "cuGraphCreate");
        check(cu.cuStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, mode),
              "cuStreamBeginCaptureToGraph");
    }
    if (relaxed) {
        Block block;
        block.place = place_;
        block.size = chance_.size();
        block.stream = CU_STREAM_PER_THREAD;
        check(allocate_as(block), "cuMemAlloc under a relaxed capture");
        use(block, block.stream);
        if (chance_.one_in(2)) {
            free(block, block.stream);
        } else {
            mine_->blocks.push_back(block);
        }
    }
}

Block Worker::allocate_in_capture(CUstream stream) {
    Block block;
    block.place = place_;
    block.kind = Kind::ordered;
    block.size = chance_.size();
    block.stream = stream;
    check(allocate_as(block), "cuMemAllocAsync in a capture");
    use(block, stream);
    return block;
}

void Worker::capture_inside(CUstream stream) {
    for (int i = 0; i < 3; i++) {
        const Block block = allocate_in_capture(stream);
        check(cu.cuMemFreeAsync(block.ptr, stream), "cuMemFreeAsync in a capture");
    }
}

// Another stream joins by an event, and comes back.
void Worker::capture_joined(CUstream stream) {
    for (const Stream &other : mine_->streams) {
        if (other.handle != stream && !other.blocking) {
            order(stream, other.handle);
            capture_inside(other.handle);
            const Block block = allocate_in_capture(other.handle);
            order(other.handle, stream);
            return check(cu.cuMemFreeAsync(block.ptr, stream), "cuMemFreeAsync in a capture");
        }
    }
}

Worker::Graph Worker::end_capture(CUstream stream, const Block &block, unsigned leaves,
                                  const Block &left) {
    CUgraph graph = nullptr;
    Graph made;
    made.block = block;
    made.leaves = leaves;
    made.left = left;
    check(cu.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    check(cu.cuGraphInstantiateWithFlags(&made.exec, graph, 0), "cuGraphInstantiateWithFlags");
    check(cu.cuGraphDestroy(graph), "cuGraphDestroy");
    return made;
}

// What a launch leaves is used and freed before the next one.
void Worker::launch() {
    if (mine_->graphs.empty()) {
        return;
    }
    const size_t number = below(mine_->graphs.size());
    Graph &graph = mine_->graphs[number];
    const CUstream stream = any_own();
    order(graph.block.stream, stream);
    check(cu.cuGraphLaunch(graph.exec, stream), "cuGraphLaunch");
    graph.block.stream = stream;
    graph.block.pattern = graph.leaves;
    look_into(graph.block);
    if (graph.left.ptr) {
        Block left = graph.left;
        const CUstream elsewhere = any_stream();
        order(stream, elsewhere);
        use(left, elsewhere);
        look_into(left);
        check(cu.cuMemFreeAsync(left.ptr, elsewhere), "cuMemFreeAsync of a graph's memory");
        order(elsewhere, stream);
    }
    if (chance_.one_in(4)) {
        drop_graph(number);
    }
}

// It may be running. The simulated driver takes a graph's memory away with the graph, so the work
// of those that leave memory is waited for.
void Worker::drop_graph(size_t number) {
    Graph graph = taken_from(mine_->graphs, number);
    if (graph.left.ptr) {
        check(cu.cuStreamSynchronize(graph.block.stream), "cuStreamSynchronize");
    }
    check(cu.cuGraphExecDestroy(graph.exec), "cuGraphExecDestroy");
    use(graph.block, graph.block.stream);
    free(graph.block, graph.block.stream);
}
