// Graphs and their memory: clones and other copies of graphs, launches, and ends. A program whose
// captures do not allocate pays for one check.
#include "server.h"

namespace emm::run {
namespace {

// --- graphs and what is made of them -----------------------------------------------------------

// This comes before the driver's call, because afterwards another thread may get the handle.
Answer graph_ends(CUgraph graph) {
    if (server().graph_memory.any()) {
        server().graph_memory.graph_ended(graph);
    }
    return {};
}

Answer executable_ends(CUgraphExec executable) {
    if (server().graph_memory.any()) {
        server().graph_memory.executable_ended(executable);
    }
    return {};
}

template <class Handle> void handle_ended(Handle) {
    server().give_back_of_ended_graphs();
}

void instantiated_with_flags(CUgraphExec *ret_executable, CUgraph graph, unsigned long long flags) {
    if (server().graph_memory.any()) {
        const bool frees_left = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
        server().graph_memory.made_executable(*ret_executable, graph, frees_left);
    }
}

// The form of CUDA 10 and 11, with the place of a mistake.
void instantiated(CUgraphExec *ret_executable, CUgraph graph, CUgraphNode *, char *, size_t) {
    instantiated_with_flags(ret_executable, graph, 0);
}

void instantiated_with_params(CUgraphExec *ret_executable, CUgraph graph,
                              CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    instantiated_with_flags(ret_executable, graph, params ? params->flags : 0);
}

// `Told`: the arguments that get the reason of a refusal; two of them in CUDA 10 and 11.
template <class... Told> void updated(CUgraphExec executable, CUgraph graph, Told...) {
    if (server().graph_memory.any()) {
        server().graph_memory.executable_updated(executable, graph);
        server().give_back_of_ended_graphs();
    }
}

// --- launches ----------------------------------------------------------------------------------

// Refuses a launch as CUDA does, although the driver knows of no memory. CUDA refuses a wait for a
// stream that captures with the same error as a launch, and invalidates the capture too.
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
    const auto ask = [&] {
        return ask_driver<&graph_launch<entry, per_thread>>(entry, executable, stream);
    };
    const CUresult result = turn.is_programs() ? with_room(every_device, 0, ask) : ask();
    if (known && result == CUDA_SUCCESS) {
        server().give_back_of_graphs(memory.launched(*known));
    }
    return result;
}

} // namespace

void serve_graphs(Entries &entries) {
    serve<served_cuGraphDestroy, &graph_ends, &handle_ended<CUgraph>>(entries);
    watch<served_cuGraphInstantiate, &instantiated>(entries);
    watch<served_cuGraphInstantiate_v2, &instantiated>(entries);
    watch<served_cuGraphInstantiateWithFlags, &instantiated_with_flags>(entries);
    watch<served_cuGraphInstantiateWithParams, &instantiated_with_params>(entries);
    watch<served_cuGraphInstantiateWithParams_ptsz, &instantiated_with_params>(entries);
    watch<served_cuGraphExecUpdate, &updated<CUgraphNode *, CUgraphExecUpdateResult *>>(entries);
    watch<served_cuGraphExecUpdate_v2, &updated<CUgraphExecUpdateResultInfo *>>(entries);
    serve<served_cuGraphExecDestroy, &executable_ends, &handle_ended<CUgraphExec>>(entries);
    entries.at[served_cuGraphLaunch] = entry_of<&graph_launch<served_cuGraphLaunch, false>>();
    entries.at[served_cuGraphLaunch_ptsz] =
        entry_of<&graph_launch<served_cuGraphLaunch_ptsz, true>>();
}

} // namespace emm::run
