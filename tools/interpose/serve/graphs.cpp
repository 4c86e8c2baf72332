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
CUresult instantiate(CUgraphExec *ret_executable, CUgraph graph, Instantiate driver_does) {
    const Turn turn;
    const CUresult result = driver_does();
    if (turn.is_programs() && result == CUDA_SUCCESS && server().graph_memory.any()) {
        server().graph_memory.made_executable(*ret_executable, graph);
    }
    return result;
}

// Of CUDA 10 and 11, with the place of a mistake.
template <Served entry>
CUresult graph_instantiate(CUgraphExec *ret_executable, CUgraph graph, CUgraphNode *ret_node,
                           char *ret_log, size_t size) {
    return instantiate(ret_executable, graph, [&] {
        return ask_driver<&graph_instantiate<entry>>(entry, ret_executable, graph, ret_node,
                                                     ret_log, size);
    });
}

CUresult graph_instantiate_with_flags(CUgraphExec *ret_executable, CUgraph graph,
                                      unsigned long long flags) {
    return instantiate(ret_executable, graph, [&] {
        return ask_driver<&graph_instantiate_with_flags>(served_cuGraphInstantiateWithFlags,
                                                         ret_executable, graph, flags);
    });
}

template <Served entry>
CUresult graph_instantiate_with_params(CUgraphExec *ret_executable, CUgraph graph, void *params) {
    return instantiate(ret_executable, graph, [&] {
        return ask_driver<&graph_instantiate_with_params<entry>>(entry, ret_executable, graph,
                                                                 params);
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

template <Served entry> CUresult graph_launch(CUgraphExec executable, CUstream stream) {
    const Turn turn;
    const CUresult result = ask_driver<&graph_launch<entry>>(entry, executable, stream);
    if (turn.is_programs() && result == CUDA_SUCCESS && server().graph_memory.any()) {
        server().give_back_of_graphs(server().graph_memory.launched(executable));
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
    entries.at[served_cuGraphExecDestroy] = entry_of<&graph_exec_destroy>();
    entries.at[served_cuGraphLaunch] = entry_of<&graph_launch<served_cuGraphLaunch>>();
    entries.at[served_cuGraphLaunch_ptsz] = entry_of<&graph_launch<served_cuGraphLaunch_ptsz>>();
}

} // namespace emm::run
