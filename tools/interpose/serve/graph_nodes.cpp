// Nodes that a program adds itself: nodes that allocate, whose memory is the driver's and counted;
// nodes that free; graphs in graphs. The driver does not know emm's memory of captures, so this
// file refuses the calls that CUDA refuses for graphs with memory.
#include "server.h"

#include <memory>

namespace emm::run {
namespace {

// --- nodes that allocate -----------------------------------------------------------------------

void CUDA_CB node_is_gone(void *argument) {
    const std::unique_ptr<char> key(static_cast<char *>(argument));
    server().passed_on.release(Passed::graph_node, reinterpret_cast<uint64_t>(key.get()));
}

// The node lasts as long as its graph and all that was made from that, which a user object tells.
void count_node(CUgraph graph, uint64_t bytes) {
    const Driver &driver = server().driver;
    std::unique_ptr<char> key(new char);
    CUuserObject object = nullptr;
    if (driver.cuUserObjectCreate(&object, key.get(), &node_is_gone, 1,
                                  CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS) {
        return;
    }
    server().passed_on.add(Passed::graph_node, reinterpret_cast<uint64_t>(key.release()),
                           {bytes, nullptr, 1, 0});
    if (driver.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) !=
        CUDA_SUCCESS) {
        driver.cuUserObjectRelease(object, 1);
    }
}

void allocating_node_made(CUgraph graph, uint64_t address, uint64_t bytes) {
    server().allocations.forget_within(address, bytes);
    count_node(graph, bytes);
}

void added_mem_alloc_node(CUgraphNode *, CUgraph graph, const CUgraphNode *, size_t,
                          CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    allocating_node_made(graph, params->dptr, params->bytesize);
}

// --- nodes that free ---------------------------------------------------------------------------

bool is_of_capture(CUdeviceptr address) {
    return server().allocations.find(address).kind == Kind::captured;
}

// In the graph of the driver, a node that only orders. The graph may be the memory's own.
template <class AddEmpty> CUresult add_free(CUgraph graph, CUdeviceptr address, AddEmpty add) {
    GraphMemory &graphs = server().graph_memory;
    const Allocation found = server().allocations.find(address);
    const AllocationName name = {found.address, found.id};
    const Capture none = {graph, 0};
    const CUresult prepared = graphs.prepare(none);
    if (prepared != CUDA_SUCCESS || !graphs.add_free(none, name)) {
        return prepared != CUDA_SUCCESS ? prepared : CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = add();
    if (result != CUDA_SUCCESS) {
        graphs.remove_free(none, name);
    }
    return result;
}

Answer add_mem_free_node(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                         size_t count, CUdeviceptr address) {
    if (!is_of_capture(address)) {
        return {};
    }
    return add_free(graph, address, [&] {
        return server().driver.cuGraphAddEmptyNode(ret_node, graph, dependencies, count);
    });
}

// --- graphs in graphs --------------------------------------------------------------------------

bool has_nodes(CUgraph graph) {
    return server().graph_memory.any() && server().graph_memory.has_nodes(graph);
}

Answer graph_clone(CUgraph *, CUgraph graph) {
    return has_nodes(graph) ? CUDA_ERROR_NOT_SUPPORTED : Answer();
}

Answer add_child_graph_node(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph child) {
    return has_nodes(child) ? CUDA_ERROR_NOT_SUPPORTED : Answer();
}

// The graph that the node has until then was cloned, so none with memory has its shape.
Answer exec_child_graph_node_set_params(CUgraphExec, CUgraphNode, CUgraph child) {
    return has_nodes(child) ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : Answer();
}

// --- nodes of every type -----------------------------------------------------------------------

#if CUDA_VERSION >= 12020
// Headers before CUDA 12.9 do not name it.
bool moves_child(const CUgraphNodeParams &params) {
    const auto *const ownership = reinterpret_cast<const int *>(&params.graph.graph + 1);
    return *ownership == 1; // CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
}

// `add` asks the driver to add a node with these parameters.
template <class Add> CUresult add_node(CUgraph graph, CUgraphNodeParams *params, Add add) {
    const Turn turn;
    if (!turn.is_programs() || !params) {
        return add(params);
    }
    const CUgraphNodeType type = params->type;
    if (type == CU_GRAPH_NODE_TYPE_MEM_FREE && is_of_capture(params->free.dptr)) {
        CUgraphNodeParams empty = {};
        empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
        return add_free(graph, params->free.dptr, [&] { return add(&empty); });
    }
    const bool is_child = type == CU_GRAPH_NODE_TYPE_GRAPH && has_nodes(params->graph.graph);
    if (is_child && !moves_child(*params)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUresult result = add(params);
    if (result == CUDA_SUCCESS && is_child) {
        server().graph_memory.graph_moved(params->graph.graph, graph);
    }
    if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        allocating_node_made(graph, params->alloc.dptr, params->alloc.bytesize);
    }
    return result;
}

CUresult graph_add_node(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                        size_t count, CUgraphNodeParams *params) {
    return add_node(graph, params, [&](CUgraphNodeParams *its) {
        return ask_driver<&graph_add_node>(served_cuGraphAddNode, ret_node, graph, dependencies,
                                           count, its);
    });
}

// With data of the edges.
template <Served entry>
CUresult graph_add_node_v2(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                           const void *edges, size_t count, CUgraphNodeParams *params) {
    return add_node(graph, params, [&](CUgraphNodeParams *its) {
        return ask_driver<&graph_add_node_v2<entry>>(entry, ret_node, graph, dependencies, edges,
                                                     count, its);
    });
}
#endif

} // namespace

void serve_graph_nodes(Entries &entries) {
    watch<served_cuGraphAddMemAllocNode, &added_mem_alloc_node>(entries);
    serve<served_cuGraphAddMemFreeNode, &add_mem_free_node>(entries);
    serve<served_cuGraphAddChildGraphNode, &add_child_graph_node>(entries);
    serve<served_cuGraphClone, &graph_clone>(entries);
    serve<served_cuGraphExecChildGraphNodeSetParams, &exec_child_graph_node_set_params>(entries);
#if CUDA_VERSION >= 12020
    entries.at[served_cuGraphAddNode] = entry_of<&graph_add_node>();
    entries.at[served_cuGraphAddNode_v2] = entry_of<&graph_add_node_v2<served_cuGraphAddNode_v2>>();
    entries.at[served_cuGraphAddNode_v3] = entry_of<&graph_add_node_v2<served_cuGraphAddNode_v3>>();
#endif
}

} // namespace emm::run
