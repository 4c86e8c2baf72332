// Graphs, as far as their memory is concerned: what is made of which graph, what is launched, and
// what ends. A program whose captures allocate nothing pays for one look.
#include "server.h"

namespace emm::run {
namespace {

// --- graphs and what is made of them -----------------------------------------------------------

CUresult graph_destroy(CUgraph graph) {
    const Turn turn;
    if (turn.is_programs() && server().graph_memory.any()) {
        server().graph_memory.graph_ended(graph); // first: another thread may get the handle
    }
    const CUresult result = ask_driver<&graph_destroy>(served_cuGraphDestroy, graph);
    if (turn.is_programs()) {
        server().give_back_of_ended_graphs();
    }
    return result;
}

template <class Instantiate>
CUresult instantiate(CUgraphExec *ret_executable, CUgraph graph, unsigned long long flags,
                     Instantiate driver_does) {
    const Turn turn;
    const CUresult result = driver_does();
    if (turn.is_programs() && result == CUDA_SUCCESS && server().graph_memory.any()) {
        const bool frees_left = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
        server().graph_memory.made_executable(*ret_executable, graph, frees_left);
    }
    return result;
}

// Of CUDA 10 and 11, with the place of a mistake.
template <Served entry>
CUresult graph_instantiate(CUgraphExec *ret_executable, CUgraph graph, CUgraphNode *ret_node,
                           char *ret_log, size_t size) {
    return instantiate(ret_executable, graph, 0, [&] {
        return ask_driver<&graph_instantiate<entry>>(entry, ret_executable, graph, ret_node,
                                                     ret_log, size);
    });
}

CUresult graph_instantiate_with_flags(CUgraphExec *ret_executable, CUgraph graph,
                                      unsigned long long flags) {
    return instantiate(ret_executable, graph, flags, [&] {
        return ask_driver<&graph_instantiate_with_flags>(served_cuGraphInstantiateWithFlags,
                                                         ret_executable, graph, flags);
    });
}

template <Served entry>
CUresult graph_instantiate_with_params(CUgraphExec *ret_executable, CUgraph graph,
                                       CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return instantiate(ret_executable, graph, params ? params->flags : 0, [&] {
        return ask_driver<&graph_instantiate_with_params<entry>>(entry, ret_executable, graph,
                                                                 params);
    });
}

template <class Update> CUresult update(CUgraphExec executable, CUgraph graph, Update driver_does) {
    const Turn turn;
    const CUresult result = driver_does();
    if (turn.is_programs() && result == CUDA_SUCCESS && server().graph_memory.any()) {
        server().graph_memory.executable_updated(executable, graph);
        server().give_back_of_ended_graphs();
    }
    return result;
}

// Of CUDA 10 and 11.
CUresult graph_exec_update_v1(CUgraphExec executable, CUgraph graph, CUgraphNode *ret_node,
                              CUgraphExecUpdateResult *ret_result) {
    return update(executable, graph, [&] {
        return ask_driver<&graph_exec_update_v1>(served_cuGraphExecUpdate, executable, graph,
                                                 ret_node, ret_result);
    });
}

CUresult graph_exec_update(CUgraphExec executable, CUgraph graph,
                           CUgraphExecUpdateResultInfo *ret_info) {
    return update(executable, graph, [&] {
        return ask_driver<&graph_exec_update>(served_cuGraphExecUpdate_v2, executable, graph,
                                              ret_info);
    });
}

CUresult graph_exec_destroy(CUgraphExec executable) {
    const Turn turn;
    if (turn.is_programs() && server().graph_memory.any()) {
        server().graph_memory.executable_ended(executable); // first, as above
    }
    const CUresult result = ask_driver<&graph_exec_destroy>(served_cuGraphExecDestroy, executable);
    if (turn.is_programs()) {
        server().give_back_of_ended_graphs();
    }
    return result;
}

// --- launches ----------------------------------------------------------------------------------

// As CUDA does, where the driver knows of no memory. A wait for a stream that captures is refused
// with the same error as a launch, and the capture is invalid too.
CUresult refuse_launch(const GraphMemory::Executable &executable, CUstream stream) {
    const CUresult in_capture = server().streams.captures(stream)
                                    ? server().driver.cuStreamSynchronize(stream)
                                    : CUDA_SUCCESS;
    return in_capture != CUDA_SUCCESS                      ? in_capture
           : !server().graph_memory.can_launch(executable) ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_SUCCESS;
}

template <Served entry, bool per_thread>
CUresult graph_launch(CUgraphExec executable, CUstream stream) {
    const Turn turn;
    GraphMemory &memory = server().graph_memory;
    const auto known = turn.is_programs() && memory.any() ? memory.find(executable) : nullptr;
    const CUresult refused =
        known ? refuse_launch(*known, meant<per_thread>(stream)) : CUDA_SUCCESS;
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    const CUresult result = ask_driver<&graph_launch<entry, per_thread>>(entry, executable, stream);
    if (known && result == CUDA_SUCCESS) {
        server().give_back_of_graphs(memory.launched(*known));
    }
    return result;
}

} // namespace

void serve_graphs(Entries &entries) {
    entries.at[served_cuGraphDestroy] = entry_of<&graph_destroy>();
    entries.at[served_cuGraphInstantiate] =
        entry_of<&graph_instantiate<served_cuGraphInstantiate>>();
    entries.at[served_cuGraphInstantiate_v2] =
        entry_of<&graph_instantiate<served_cuGraphInstantiate_v2>>();
    entries.at[served_cuGraphInstantiateWithFlags] = entry_of<&graph_instantiate_with_flags>();
    entries.at[served_cuGraphInstantiateWithParams] =
        entry_of<&graph_instantiate_with_params<served_cuGraphInstantiateWithParams>>();
    entries.at[served_cuGraphInstantiateWithParams_ptsz] =
        entry_of<&graph_instantiate_with_params<served_cuGraphInstantiateWithParams_ptsz>>();
    entries.at[served_cuGraphExecUpdate] = entry_of<&graph_exec_update_v1>();
    entries.at[served_cuGraphExecUpdate_v2] = entry_of<&graph_exec_update>();
    entries.at[served_cuGraphExecDestroy] = entry_of<&graph_exec_destroy>();
    entries.at[served_cuGraphLaunch] = entry_of<&graph_launch<served_cuGraphLaunch, false>>();
    entries.at[served_cuGraphLaunch_ptsz] =
        entry_of<&graph_launch<served_cuGraphLaunch_ptsz, true>>();
}

} // namespace emm::run
