#include "served_process.h"

using namespace emm::run;

#if CUDA_VERSION < 12020 // no CUgraphNodeParams

void emm::run::stand_in_for_graphs(Entries &) {}

#else

namespace {

using AddChild = CUresult(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph);
using AddNode = CUresult(CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t,
                         CUgraphNodeParams *);
using SetChild = CUresult(CUgraphExec, CUgraphNode, CUgraph);
using Recapture = CUresult(CUstream, CUstreamCaptureMode, CUgraph, void (*)(), void *);

CUgraphNodeType added = CU_GRAPH_NODE_TYPE_KERNEL; // by the stand-in, which adds nothing

CUresult add_node(CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t,
                  CUgraphNodeParams *params) {
    added = params->type;
    return CUDA_SUCCESS;
}

CUresult add_child(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph) {
    return CUDA_SUCCESS;
}

CUresult set_child(CUgraphExec, CUgraphNode, CUgraph) {
    return CUDA_SUCCESS;
}

template <class Function> Function *simulated(const char *symbol) {
    void *const library = dlopen(std::getenv("EMM_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Function *>(dlsym(library, symbol));
}

// As CUDA 13.3 does: the graph's user objects go first. The next graph gets its handle.
CUresult recapture(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void (*)(), void *) {
    simulated<CUresult(CUgraph)>("cuGraphDestroy")(graph);
    return simulated<CUresult(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2")(stream,
                                                                                         mode);
}

} // namespace

void emm::run::stand_in_for_graphs(Entries &driver) {
    driver.at[served_cuGraphAddNode_v2] = driver.at[served_cuGraphAddNode_v3] =
        reinterpret_cast<Entry>(&add_node);
    driver.at[served_cuGraphAddChildGraphNode] = reinterpret_cast<Entry>(&add_child);
    driver.at[served_cuGraphExecChildGraphNodeSetParams] = reinterpret_cast<Entry>(&set_child);
    driver.at[served_cuStreamBeginRecaptureToGraph] = reinterpret_cast<Entry>(&recapture);
}

namespace {

template <class Function> Function *emm_entry(Served entry) {
    return process().emm<Function *>(entry);
}

CUstream make_stream() {
    CUstream stream = nullptr;
    REQUIRE(emm_entry<CUresult(CUstream *, unsigned)>(served_cuStreamCreate)(
                &stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    return stream;
}

void begin(CUstream stream) {
    REQUIRE(emm_entry<CUresult(CUstream, CUstreamCaptureMode)>(served_cuStreamBeginCapture_v2)(
                stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
}

CUdeviceptr allocate(CUstream stream) {
    CUdeviceptr ptr = 0;
    REQUIRE(emm_entry<CUresult(CUdeviceptr *, size_t, CUstream)>(served_cuMemAllocAsync)(
                &ptr, 4096, stream) == CUDA_SUCCESS);
    return ptr;
}

CUresult free_on(CUstream stream, CUdeviceptr ptr) {
    return emm_entry<CUresult(CUdeviceptr, CUstream)>(served_cuMemFreeAsync)(ptr, stream);
}

CUgraph end(CUstream stream) {
    CUgraph graph = nullptr;
    REQUIRE(emm_entry<CUresult(CUstream, CUgraph *)>(served_cuStreamEndCapture)(stream, &graph) ==
            CUDA_SUCCESS);
    return graph;
}

CUgraph leaving(CUstream stream, CUdeviceptr &ret_left) {
    begin(stream);
    ret_left = allocate(stream);
    return end(stream);
}

CUgraph empty_graph() {
    CUgraph graph = nullptr;
    REQUIRE(simulated<CUresult(CUgraph *, unsigned)>("cuGraphCreate")(&graph, 0) == CUDA_SUCCESS);
    return graph;
}

CUgraphExec executable_of(CUgraph graph) {
    CUgraphExec executable = nullptr;
    REQUIRE(emm_entry<CUresult(CUgraphExec *, CUgraph, unsigned long long)>(
                served_cuGraphInstantiateWithFlags)(&executable, graph, 0) == CUDA_SUCCESS);
    return executable;
}

CUresult launch(CUgraphExec executable, CUstream stream) {
    return emm_entry<CUresult(CUgraphExec, CUstream)>(served_cuGraphLaunch)(executable, stream);
}

void end(CUgraph graph) {
    REQUIRE(emm_entry<CUresult(CUgraph)>(served_cuGraphDestroy)(graph) == CUDA_SUCCESS);
}

void end(CUgraphExec executable) {
    REQUIRE(emm_entry<CUresult(CUgraphExec)>(served_cuGraphExecDestroy)(executable) ==
            CUDA_SUCCESS);
}

CUgraphNodeParams child_node(CUgraph child, bool moves) {
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = child;
    params.reserved1[1] = moves; // the ownership, which older headers lack
    return params;
}

} // namespace

TEST_CASE("a graph with memory is cloned into no node, and sets none") {
    REQUIRE(process().serves());
    const Context context;
    const CUstream stream = make_stream();
    CUdeviceptr left = 0;
    CUgraphNode node = nullptr;
    const CUgraph child = leaving(stream, left), parent = empty_graph(), plain = empty_graph();
    const auto add_by_type = emm_entry<AddNode>(served_cuGraphAddNode_v3);
    const auto add_by_name = emm_entry<AddChild>(served_cuGraphAddChildGraphNode);
    const auto set = emm_entry<SetChild>(served_cuGraphExecChildGraphNodeSetParams);
    CUgraphNodeParams params = child_node(child, false), good = child_node(plain, false);
    CHECK(add_by_name(&node, parent, nullptr, 0, child) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(add_by_name(&node, parent, nullptr, 0, plain) == CUDA_SUCCESS);
    CHECK(add_by_type(&node, parent, nullptr, nullptr, 0, &params) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(add_by_type(&node, parent, nullptr, nullptr, 0, &good) == CUDA_SUCCESS);
    CHECK(set(nullptr, node, child) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(set(nullptr, node, plain) == CUDA_SUCCESS);
    for (const CUgraph graph : {child, parent, plain}) {
        end(graph);
    }
}

TEST_CASE("a graph that is moved into another one takes its memory along") {
    REQUIRE(process().serves());
    for (const Served entry : {served_cuGraphAddNode_v2, served_cuGraphAddNode_v3}) {
        const Context context;
        const CUstream stream = make_stream();
        CUdeviceptr left = 0;
        CUgraphNode node = nullptr;
        const CUgraph child = leaving(stream, left), parent = empty_graph();
        CUgraphNodeParams params = child_node(child, true);
        REQUIRE(emm_entry<AddNode>(entry)(&node, parent, nullptr, nullptr, 0, &params) ==
                CUDA_SUCCESS);
        const CUgraphExec executable = executable_of(parent);
        CHECK(free_on(stream, left) == CUDA_ERROR_INVALID_VALUE);
        CHECK(launch(executable, stream) == CUDA_SUCCESS);
        CHECK(launch(executable, stream) == CUDA_ERROR_INVALID_VALUE);
        CHECK(free_on(stream, left) == CUDA_SUCCESS);
        end(executable);
        end(parent);
        end(child);
    }
}

TEST_CASE("a node of CUDA 13.4 that frees captured memory is the driver's node that only orders") {
    REQUIRE(process().serves());
    const Context context;
    const CUstream stream = make_stream();
    CUdeviceptr left = 0;
    CUgraphNode node = nullptr;
    CUgraphNodeParams params = {};
    const CUgraph graph = leaving(stream, left), freeing = empty_graph();
    params.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    params.free.dptr = left;
    const auto add = emm_entry<AddNode>(served_cuGraphAddNode_v3);
    CHECK(add(&node, freeing, nullptr, nullptr, 0, &params) == CUDA_SUCCESS);
    CHECK(added == CU_GRAPH_NODE_TYPE_EMPTY);
    CHECK(add(&node, freeing, nullptr, nullptr, 0, &params) == CUDA_ERROR_INVALID_VALUE);
    const CUgraphExec executable = executable_of(graph), frees = executable_of(freeing);
    CHECK(launch(executable, stream) == CUDA_SUCCESS);
    CHECK(launch(frees, stream) == CUDA_SUCCESS);
    CHECK(free_on(stream, left) == CUDA_ERROR_INVALID_VALUE);
    end(executable);
    end(frees);
    end(graph);
    end(freeing);
}

TEST_CASE(
    "a graph that is captured again keeps its new memory after the end of what was made before") {
    REQUIRE(process().serves());
    const Context context;
    const CUstream stream = make_stream();
    CUdeviceptr first = 0;
    const CUgraph graph = leaving(stream, first);
    const CUgraphExec before = executable_of(graph);
    CHECK(launch(before, stream) == CUDA_SUCCESS);
    REQUIRE(emm_entry<Recapture>(served_cuStreamBeginRecaptureToGraph)(
                stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, nullptr, nullptr) == CUDA_SUCCESS);
    const CUdeviceptr second = allocate(stream);
    REQUIRE(end(stream) == graph);
    const CUgraphExec after = executable_of(graph);
    CHECK(free_on(stream, first) == CUDA_SUCCESS);
    end(before);
    CHECK(launch(after, stream) == CUDA_SUCCESS);
    CHECK(allocate(stream) != second);
    CHECK(free_on(stream, second) == CUDA_SUCCESS);
    end(after);
    end(graph);
}

#endif
