// An executable graph takes over the nodes of another graph that has the same shape.
#include "call.h"
#include "graph.h"
#include "graph_memory.h"
#include "simulator.h"

#include <algorithm>
#include <array>

namespace simcuda {
namespace {

// The type of a node: an update may change nodes of one type into each other.
CUgraphNodeType type_of(const Node &node) {
    struct Calls {
        std::string_view prefix;
        CUgraphNodeType type;
    };
    static constexpr std::array calls = {
        Calls{"cuMemset", CU_GRAPH_NODE_TYPE_MEMSET},
        Calls{"cuMemcpy", CU_GRAPH_NODE_TYPE_MEMCPY},
        Calls{"cuMemAlloc", CU_GRAPH_NODE_TYPE_MEM_ALLOC},
        Calls{"cuGraphAddMemAllocNode", CU_GRAPH_NODE_TYPE_MEM_ALLOC},
        Calls{"cuMemFree", CU_GRAPH_NODE_TYPE_MEM_FREE},
        Calls{"cuGraphAddMemFreeNode", CU_GRAPH_NODE_TYPE_MEM_FREE},
        Calls{"cuGraphAddEmptyNode", CU_GRAPH_NODE_TYPE_EMPTY},
    };
    const auto found = std::find_if(calls.begin(), calls.end(), [&](const Calls &each) {
        return std::string_view(node.call).starts_with(each.prefix);
    });
    return found == calls.end() ? CU_GRAPH_NODE_TYPE_HOST : found->type;
}

bool does_work(const std::unique_ptr<Node> &node) {
    const CUgraphNodeType type = type_of(*node);
    return type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && type != CU_GRAPH_NODE_TYPE_MEM_FREE;
}

size_t place_of(const Body &body, const Node *node) {
    const auto found = std::find_if(body.nodes.begin(), body.nodes.end(),
                                    [&](const auto &each) { return each.get() == node; });
    return size_t(found - body.nodes.begin());
}

CUgraphExecUpdateResultInfo failed(CUgraphExecUpdateResult result, const Node *node = nullptr,
                                   const Node *from = nullptr) {
    return {result, node ? node->handle : nullptr, from ? from->handle : nullptr};
}

// Nodes are paired in the order in which they were added. The node in the result is the new
// graph's.
CUgraphExecUpdateResultInfo compare_nodes(const Body &before, const Body &after, size_t place) {
    const Node &was = *before.nodes[place], &is = *after.nodes[place];
    if (was.before.size() != is.before.size()) {
        return failed(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &is);
    }
    for (size_t i = 0; i < is.before.size(); i++) {
        if (place_of(before, was.before[i]) != place_of(after, is.before[i])) {
            return failed(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &is, is.before[i]);
        }
    }
    return type_of(was) == type_of(is) ? failed(CU_GRAPH_EXEC_UPDATE_SUCCESS)
                                       : failed(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, &is);
}

CUgraphExecUpdateResultInfo compare(const Body &before, const Body &after) {
    CUgraphExecUpdateResultInfo info = failed(before.nodes.size() == after.nodes.size()
                                                  ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                  : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    for (size_t i = 0; i < after.nodes.size() && info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++) {
        info = compare_nodes(before, after, i);
    }
    if (info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS && &before != &after && frees_own(after)) {
        const auto work = std::find_if(after.nodes.begin(), after.nodes.end(), does_work);
        return work == after.nodes.end() ? info : failed(CU_GRAPH_EXEC_UPDATE_ERROR, work->get());
    }
    return info;
}

} // namespace

// The user objects of the previous graph are released once its launches are over.
void api::graph_exec_update(CUgraphExec h_graph_exec, CUgraph h_graph,
                            CUgraphExecUpdateResultInfo *result_info) {
    Executable &executable = find_executable(h_graph_exec);
    Graph &graph = find_graph(h_graph);
    expect(result_info);
    *result_info = compare(*executable.body, *graph.body);
    expect(result_info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS,
           CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE); // and the first version tells why
    executable.body = graph.body;
    executable.held = hold_too(*graph.held);
}

void api::graph_exec_update_v1(CUgraphExec h_graph_exec, CUgraph h_graph,
                               CUgraphNode *ph_error_node, CUgraphExecUpdateResult *update_result) {
    CUgraphExecUpdateResultInfo info = {};
    expect(ph_error_node && update_result);
    const CUresult result = result_of([&] { graph_exec_update(h_graph_exec, h_graph, &info); });
    *ph_error_node = info.errorNode;
    *update_result = info.result;
    expect_success(result);
}

} // namespace simcuda
