#include "graph_memory.h"

#include "call.h"
#include "simulator.h"

#include <algorithm>

namespace simcuda {
namespace {

Region *graph_region(CUdeviceptr start) {
    Region *const region = sim().regions.at(start);
    return region && region->kind == Kind::graph ? region : nullptr;
}

template <class Visit> void each_region(const std::vector<CUdeviceptr> &memory, Visit visit) {
    for (const CUdeviceptr start : memory) {
        if (Region *region = graph_region(start)) {
            visit(*region);
        }
    }
}

} // namespace

bool has_live(const Body &body) {
    bool found = false;
    each_region(body.memory, [&](const Region &region) { found = found || region.live; });
    return found;
}

void graph_memory_launched(const Body &body, Stream &stream) {
    each_region(body.frees, [&](Region &region) { free_graph_memory(region, &stream); });
    each_region(body.memory, [](Region &region) { region.live = !region.freed_inside; });
}

bool free_in_graph(Graph &graph, Region &region) {
    const std::vector<CUdeviceptr> &own = graph.body->memory;
    if (std::find(own.begin(), own.end(), region.start) != own.end()) {
        return !std::exchange(region.freed_inside, true);
    }
    std::vector<CUdeviceptr> &frees = graph.body->frees;
    if (region.freed_inside || std::find(frees.begin(), frees.end(), region.start) != frees.end()) {
        return false;
    }
    frees.push_back(region.start);
    return true;
}

bool free_graph_memory(Region &region, Stream *stream) {
    if (!std::exchange(region.live, false)) {
        return false;
    }
    if (!region.outlives_graph) {
        return true;
    }
    const Region gone = region;
    sim().regions.remove(gone.start, this_thread.call);
    if (stream) {
        stream->tail = sim().work.add([=] { give_to_device(gone); }, false, {stream->tail});
    } else {
        give_to_device(gone);
    }
    return true;
}

void end_graph_memory(const Body &body) {
    each_region(body.memory, [](Region &region) {
        region.outlives_graph = true;
        if (!region.live) {
            region.store->shadow.clear(region.offset, region.size);
            free_region(region.start);
        }
    });
}

} // namespace simcuda
