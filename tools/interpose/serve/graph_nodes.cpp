// Nodes that a program adds itself: nodes that allocate, whose memory is the driver's and counted;
// nodes that free; graphs in graphs. The driver does not know emm's memory of captures, so this
// file makes the refusals of CUDA for graphs with memory.
#include "charged.h"

#include <memory>

namespace emm::run {
namespace {

// --- nodes that allocate -----------------------------------------------------------------------

void CUDA_CB node_is_gone(void *argument) {
    const std::unique_ptr<uint64_t> charge(static_cast<uint64_t *>(argument));
    emm_give_driver_memory(*charge);
}

// The charge lasts as long as the node's graph and all that was made from the graph; a user object
// tells their end.
void count_node(CUgraph graph, Charged &charged) {
    const Driver &driver = server().driver;
    auto charge = std::make_unique<uint64_t>(charged.id());
    CUuserObject object = nullptr;
    if (driver.cuUserObjectCreate(&object, charge.get(), &node_is_gone, 1,
                                  CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS) {
        return;
    }
    charge.release();
    charged.keep(nullptr);
    if (driver.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) !=
        CUDA_SUCCESS) {
        driver.cuUserObjectRelease(object, 1);
    }
}

// `add` makes the driver add a node that allocates.
template <class Params, class Add>
CUresult add_allocating(const Turn &turn, CUgraph graph, Params *params, Add add) {
    const emm_driver_memory wanted = {
        sizeof(emm_driver_memory),     params ? params->poolProps.location.id : -1,
        EMM_MEMORY_GRAPH_NODE,         0,
        params ? params->bytesize : 0, nullptr};
    Charged charged(turn.is_programs(), wanted);
    const CUresult result = charged.call(add);
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        server().allocations.forget_within(params->dptr, params->bytesize);
        count_node(graph, charged);
    }
    return result;
}

CUresult add_mem_alloc_node(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    const Turn turn;
    return add_allocating(turn, graph, params, [&] {
        return ask_driver<&add_mem_alloc_node>(served_cuGraphAddMemAllocNode, ret_node, graph,
                                               dependencies, count, params);
    });
}

// --- nodes that free ---------------------------------------------------------------------------

bool is_of_capture(CUdeviceptr address) {
    return server().allocations.find(address).kind == Kind::captured;
}

// Adds a free. The driver's graph gets a node that only orders. The graph may be the one that owns
// the memory.
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

// CUDA clones no graph with memory. The node's graph is a clone, so a child with memory never fits.
Answer exec_child_graph_node_set_params(CUgraphExec, CUgraphNode, CUgraph child) {
    return has_nodes(child) ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : Answer();
}

// --- nodes of every type -----------------------------------------------------------------------

#if CUDA_VERSION >= 12020
// Headers before CUDA 12.9 do not name this constant.
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
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        return add_allocating(turn, graph, &params->alloc, [&] { return add(params); });
    }
    const CUresult result = add(params);
    if (result == CUDA_SUCCESS && is_child) {
        server().graph_memory.graph_moved(params->graph.graph, graph);
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

// The form with the data of edges.
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
    entries.at[served_cuGraphAddMemAllocNode] = entry_of<&add_mem_alloc_node>();
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
