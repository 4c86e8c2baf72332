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
    if (!has_got(allocate_as(block), "an allocation")) {
        return;
    }
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
    if (left.ptr && chance_.one_in(2)) {
        mine_->graphs.back().frees = capture_free(left, stream.handle);
    }
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
        if (!has_got(allocate_as(block), "cuMemAlloc under a relaxed capture")) {
            return;
        }
        use(block, block.stream);
        if (chance_.one_in(2)) {
            free(block, block.stream);
        } else {
            mine_->blocks.push_back(block);
        }
    }
}

// ptr 0: there is no memory left.
Block Worker::allocate_in_capture(CUstream stream) {
    Block block;
    block.place = place_;
    block.kind = Kind::ordered;
    block.size = chance_.size();
    block.stream = stream;
    if (has_got(allocate_as(block), "cuMemAllocAsync in a capture")) {
        use(block, stream);
    }
    return block;
}

void Worker::free_in_capture(const Block &block, CUstream stream) {
    if (block.ptr) {
        check(cu.cuMemFreeAsync(block.ptr, stream), "cuMemFreeAsync in a capture");
    }
}

void Worker::capture_inside(CUstream stream) {
    for (int i = 0; i < 3; i++) {
        free_in_capture(allocate_in_capture(stream), stream);
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
            return free_in_capture(block, stream);
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

// Another graph, which frees what this one leaves.
CUgraphExec Worker::capture_free(const Block &left, CUstream stream) {
    CUgraph graph = nullptr;
    CUgraphExec made = nullptr;
    begin_capture(stream);
    if (chance_.one_in(2)) {
        capture_inside(stream);
    }
    check(cu.cuMemFreeAsync(left.ptr, stream), "cuMemFreeAsync of another graph's memory");
    check(cu.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    check(cu.cuGraphInstantiateWithFlags(&made, graph, 0), "cuGraphInstantiateWithFlags");
    check(cu.cuGraphDestroy(graph), "cuGraphDestroy");
    return made;
}

// What a launch leaves is freed before the next one, and may be left once more.
void Worker::launch() {
    if (mine_->graphs.empty()) {
        return;
    }
    const size_t number = below(mine_->graphs.size());
    Graph &graph = mine_->graphs[number];
    if (graph.has_left) {
        free_left(graph);
    }
    const CUstream stream = any_own();
    order(graph.block.stream, stream);
    check(cu.cuGraphLaunch(graph.exec, stream), "cuGraphLaunch");
    graph.block.stream = stream;
    graph.block.pattern = graph.leaves;
    look_into(graph.block);
    if (graph.left.ptr) {
        use_left(graph, stream);
        if (chance_.one_in(2)) {
            free_left(graph);
        }
    }
    if (chance_.one_in(4)) {
        drop_graph(number);
    }
}

void Worker::use_left(Graph &graph, CUstream stream) {
    const CUstream elsewhere = any_stream();
    order(stream, elsewhere);
    graph.has_left = true;
    use(graph.left, elsewhere);
    look_into(graph.left);
}

// The next launch follows.
void Worker::free_left(Graph &graph) {
    Block &left = graph.left;
    const size_t dice = below(4);
    const CUstream stream = dice == 3 ? any_stream() : any_own();
    order(left.stream, stream);
    left.stream = stream;
    if (dice == 0 && graph.frees) {
        check(cu.cuGraphLaunch(graph.frees, stream), "cuGraphLaunch of a graph that frees");
    } else if (dice == 1) {
        check(cu.cuStreamSynchronize(stream), "cuStreamSynchronize");
        wander();
        check(cu.cuMemFree(left.ptr), "cuMemFree of a graph's memory");
        enter(place_);
    } else if (dice == 2 && (place_ ^ 1) < place_count && world_.settings.foreign) {
        free_left_from_another_context(left);
    } else {
        check(cu.cuMemFreeAsync(left.ptr, stream), "cuMemFreeAsync of a graph's memory");
    }
    order(stream, graph.block.stream);
    graph.has_left = false;
}

// Behind the stream of the block, which waits for the free.
void Worker::free_left_from_another_context(const Block &left) {
    const unsigned here = place_;
    const CUstream stream = all_[here ^ 1].streams[below(own_streams)].handle;
    order(left.stream, stream);
    wander();
    check(cu.cuMemFreeAsync(left.ptr, stream), "cuMemFreeAsync on a stream of another context");
    enter(here ^ 1);
    order(stream, left.stream);
    enter(here);
}

// It may be running. What its last launch left is a block like others.
void Worker::drop_graph(size_t number) {
    Graph graph = taken_from(mine_->graphs, number);
    if (graph.left.ptr && !graph.has_left) {
        check(cu.cuStreamSynchronize(graph.block.stream), "cuStreamSynchronize");
    }
    check(cu.cuGraphExecDestroy(graph.exec), "cuGraphExecDestroy");
    if (graph.has_left && chance_.one_in(2)) {
        free_left(graph);
    }
    if (graph.frees) {
        check(cu.cuGraphExecDestroy(graph.frees), "cuGraphExecDestroy");
    }
    if (graph.has_left) {
        mine_->blocks.push_back(graph.left);
    }
    use(graph.block, graph.block.stream);
    free(graph.block, graph.block.stream);
}
