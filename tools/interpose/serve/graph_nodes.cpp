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

CUresult add_mem_alloc_node(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    const Turn turn;
    const CUresult result = ask_driver<&add_mem_alloc_node>(served_cuGraphAddMemAllocNode, ret_node,
                                                            graph, dependencies, count, params);
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        allocating_node_made(graph, params->dptr, params->bytesize);
    }
    return result;
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

CUresult add_mem_free_node(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                           size_t count, CUdeviceptr address) {
    const Turn turn;
    if (turn.is_programs() && is_of_capture(address)) {
        return add_free(graph, address, [&] {
            return server().driver.cuGraphAddEmptyNode(ret_node, graph, dependencies, count);
        });
    }
    return ask_driver<&add_mem_free_node>(served_cuGraphAddMemFreeNode, ret_node, graph,
                                          dependencies, count, address);
}

// --- graphs in graphs --------------------------------------------------------------------------

bool has_nodes(const Turn &turn, CUgraph graph) {
    return turn.is_programs() && server().graph_memory.any() &&
           server().graph_memory.has_nodes(graph);
}

CUresult graph_clone(CUgraph *ret_clone, CUgraph graph) {
    const Turn turn;
    return has_nodes(turn, graph) ? CUDA_ERROR_NOT_SUPPORTED
                                  : ask_driver<&graph_clone>(served_cuGraphClone, ret_clone, graph);
}

CUresult add_child_graph_node(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, CUgraph child) {
    const Turn turn;
    return has_nodes(turn, child)
               ? CUDA_ERROR_NOT_SUPPORTED
               : ask_driver<&add_child_graph_node>(served_cuGraphAddChildGraphNode, ret_node, graph,
                                                   dependencies, count, child);
}

// The graph that the node has until then was cloned, so none with memory has its shape.
CUresult exec_child_graph_node_set_params(CUgraphExec executable, CUgraphNode node, CUgraph child) {
    const Turn turn;
    return has_nodes(turn, child)
               ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
               : ask_driver<&exec_child_graph_node_set_params>(
                     served_cuGraphExecChildGraphNodeSetParams, executable, node, child);
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
    const bool is_child = type == CU_GRAPH_NODE_TYPE_GRAPH && has_nodes(turn, params->graph.graph);
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
    entries.at[served_cuGraphAddMemAllocNode] = entry_of<&add_mem_alloc_node>();
    entries.at[served_cuGraphAddMemFreeNode] = entry_of<&add_mem_free_node>();
    entries.at[served_cuGraphAddChildGraphNode] = entry_of<&add_child_graph_node>();
    entries.at[served_cuGraphClone] = entry_of<&graph_clone>();
    entries.at[served_cuGraphExecChildGraphNodeSetParams] =
        entry_of<&exec_child_graph_node_set_params>();
#if CUDA_VERSION >= 12020
    entries.at[served_cuGraphAddNode] = entry_of<&graph_add_node>();
    entries.at[served_cuGraphAddNode_v2] = entry_of<&graph_add_node_v2<served_cuGraphAddNode_v2>>();
    entries.at[served_cuGraphAddNode_v3] = entry_of<&graph_add_node_v2<served_cuGraphAddNode_v3>>();
#endif
}

} // namespace emm::run
