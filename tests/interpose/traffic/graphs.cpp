// Captures, and the graphs made of them. While a thread captures it makes no call that a capture
// forbids; other threads go on as usual.
#include "worker.h"

#include <utility>

// Makes an executable graph, or updates one to another graph. Captures only on streams that the
// legacy stream does not wait for, because other threads use the legacy stream.
void Worker::capture() {
    const Stream &stream = mine_->streams[below(own_streams)];
    std::vector<Graph> &graphs = mine_->graphs;
    const bool is_update = !graphs.empty() && world_.settings.updates != 0 && chance_.one_in(2);
    const bool is_full = graphs.size() == most_graphs && !is_update;
    if (stream.blocking || is_full || world_.settings.captures == 0) {
        return;
    }
    const size_t updated = is_update ? below(graphs.size()) : 0;
    const bool alike = is_update && !chance_.one_in(4);
    Graph made = capture_graph(stream.handle, alike ? graphs[updated] : Graph());
    if (!made.source) {
        return;
    }
    if (is_update) {
        return update(graphs[updated], made);
    }
    make_executable(made);
    graphs.push_back(made);
}

// May allocate and free inside, writes a block of the thread's, and may leave memory to the thread
// that launches it. If `like` has a block, the graph has the same shape, so that an update may take
// it over.
Worker::Graph Worker::capture_graph(CUstream stream, const Graph &like) {
    const bool is_free = !like.block.ptr;
    Graph made;
    Block &block = made.block;
    block.place = place_;
    block.size = size_like(like.block);
    block.stream = stream;
    block.kind = chance_.one_in(2) ? Kind::plain : Kind::ordered;
    if (!has_got(allocate_as(block), "an allocation")) {
        return {};
    }
    begin_capture(stream);
    if (is_free && chance_.one_in(2)) {
        capture_inside(stream);
        if (chance_.one_in(2)) {
            capture_joined(stream);
        }
    }
    use(block, stream);
    made.leaves = block.pattern;
    if (world_.settings.captures == 2 && (is_free ? chance_.one_in(2) : like.left.ptr != 0)) {
        made.left = allocate_in_capture(stream, like.left);
    }
    made.source = end_capture(stream);
    return made;
}

// A size with as many written ends as `block`; any size if there is no block.
size_t Worker::size_like(const Block &block) {
    const auto has_tail = [](size_t size) { return size >= 2 * Ends::edge; };
    size_t size = chance_.size();
    while (block.ptr && has_tail(size) != has_tail(block.size)) {
        size = chance_.size();
    }
    return size;
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

// ptr 0: out of memory.
Block Worker::allocate_in_capture(CUstream stream, const Block &like) {
    Block block;
    block.place = place_;
    block.kind = Kind::ordered;
    block.size = size_like(like);
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

CUgraph Worker::end_capture(CUstream stream) {
    CUgraph graph = nullptr;
    check(cu.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    return graph;
}

// Made from its source, unless it has taken over another graph; and the graph that frees its
// memory.
void Worker::make_executable(Graph &graph) {
    if (!graph.exec) {
        check(cu.cuGraphInstantiateWithFlags(&graph.exec, graph.source, 0),
              "cuGraphInstantiateWithFlags");
    }
    if (chance_.one_in(2)) {
        check(cu.cuGraphDestroy(graph.source), "cuGraphDestroy");
        graph.source = nullptr;
    }
    if (graph.left.ptr && chance_.one_in(2)) {
        graph.frees = capture_free(graph.left, graph.block.stream);
    }
}

// Where CUDA refuses the update, a new executable graph takes the place, as in programs.
void Worker::update(Graph &graph, Graph made) {
    CUgraphExecUpdateResultInfo info = {};
    Graph old = graph;
    drop_left(old);
    const CUresult result = cu.cuGraphExecUpdate(old.exec, made.source, &info);
    if (result == CUDA_SUCCESS) {
        made.exec = std::exchange(old.exec, nullptr);
    } else if (result != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
        check(result, "cuGraphExecUpdate");
    }
    make_executable(made);
    graph = made;
    end_graph(old);
}

// Another graph, which frees the memory that this one leaves.
CUgraphExec Worker::capture_free(const Block &left, CUstream stream) {
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec made = nullptr;
    if (chance_.one_in(4)) {
        check(cu.cuGraphCreate(&graph, 0), "cuGraphCreate");
        check(cu.cuGraphAddMemFreeNode(&node, graph, nullptr, 0, left.ptr),
              "cuGraphAddMemFreeNode");
    } else {
        begin_capture(stream);
        if (chance_.one_in(2)) {
            capture_inside(stream);
        }
        check(cu.cuMemFreeAsync(left.ptr, stream), "cuMemFreeAsync of another graph's memory");
        graph = end_capture(stream);
    }
    check(cu.cuGraphInstantiateWithFlags(&made, graph, 0), "cuGraphInstantiateWithFlags");
    check(cu.cuGraphDestroy(graph), "cuGraphDestroy");
    return made;
}

void Worker::expect_refused(CUgraphExec exec, CUstream stream, const char *what) {
    if (cu.cuGraphLaunch(exec, stream) != CUDA_ERROR_INVALID_VALUE) {
        throw std::runtime_error(std::string(what) + " is not refused");
    }
}

// Memory that a launch leaves is freed before the next launch, which may leave it once more.
void Worker::launch() {
    if (mine_->graphs.empty()) {
        return;
    }
    const size_t number = below(mine_->graphs.size());
    Graph &graph = mine_->graphs[number];
    const CUstream stream = any_own();
    if (graph.has_left && chance_.one_in(2)) {
        expect_refused(graph.exec, stream, "a launch with the last one's memory not freed");
    }
    if (graph.has_left) {
        free_left(graph);
    }
    if (graph.frees && chance_.one_in(2)) {
        expect_refused(graph.frees, stream, "a launch that frees what the program has not got");
    }
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

// Drops the graph. Memory that the last launch left is then a block like others.
void Worker::drop_left(Graph &graph) {
    if (graph.left.ptr && !graph.has_left) {
        check(cu.cuStreamSynchronize(graph.block.stream), "cuStreamSynchronize");
    } else if (graph.has_left && chance_.one_in(2)) {
        free_left(graph);
        check(cu.cuStreamSynchronize(graph.block.stream), "cuStreamSynchronize");
    }
    if (graph.frees) {
        check(cu.cuGraphExecDestroy(graph.frees), "cuGraphExecDestroy");
    }
    if (graph.has_left) {
        mine_->blocks.push_back(graph.left);
    }
}

// It may be running.
void Worker::end_graph(const Graph &graph) {
    const bool source_first = chance_.one_in(2);
    if (graph.source && source_first) {
        check(cu.cuGraphDestroy(graph.source), "cuGraphDestroy");
    }
    if (graph.exec) {
        check(cu.cuGraphExecDestroy(graph.exec), "cuGraphExecDestroy");
    }
    if (graph.source && !source_first) {
        check(cu.cuGraphDestroy(graph.source), "cuGraphDestroy");
    }
    Block block = graph.block;
    use(block, block.stream);
    free(block, block.stream);
}

void Worker::drop_graph(size_t number) {
    Graph graph = taken_from(mine_->graphs, number);
    const bool left_first = chance_.one_in(2) || !graph.has_left;
    if (left_first) {
        drop_left(graph);
    }
    end_graph(graph);
    if (!left_first) {
        drop_left(graph);
    }
}
