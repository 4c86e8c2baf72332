#include "graph_memory.h"

#include "call.h"
#include "device.h"
#include "simulator.h"

#include <algorithm>
#include <cstring>

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

Region *take_for_graph(Graph &graph, Device &device, uint64_t size) {
    const auto offset = device.take(size);
    if (!offset) {
        return nullptr;
    }
    Region region;
    region.start = device.window + *offset;
    region.size = size;
    region.kind = Kind::graph;
    region.device = &device;
    region.store = &device.store;
    region.offset = *offset;
    graph.body->memory.push_back(region.start);
    return &sim().regions.add(region);
}

Bind bind_write(const Region &region) {
    const Span span{region.store, region.offset, region.size, region.start};
    return [=](Task &ret_task) { ret_task.uses = {{span, true}}; };
}

bool has_memory_nodes(const Body &body) {
    return !body.memory.empty() || !body.frees.empty();
}

bool frees_own(const Body &body) {
    bool found = false;
    each_region(body.memory, [&](const Region &region) { found = found || region.freed_inside; });
    return found;
}

bool has_live(const Body &body) {
    bool found = false;
    each_region(body.memory, [&](const Region &region) { found = found || region.live; });
    return found;
}

bool can_free(const Body &body) {
    return std::all_of(body.frees.begin(), body.frees.end(), [](CUdeviceptr start) {
        const Region *const region = graph_region(start);
        return region && region->live;
    });
}

void graph_memory_launched(const Body &body, Stream &stream) {
    each_region(body.frees, [&](Region &region) { free_graph_memory(region, &stream); });
    each_region(body.memory, [](Region &region) {
        region.live = !region.freed_inside;
        region.device->graph_figures.launched(region);
    });
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

namespace {

// The graph, and those of its nodes that are named.
Graph &find_place(CUgraph handle, const CUgraphNode *dependencies, size_t count,
                  std::vector<Node *> &ret_before) {
    Graph &graph = find_graph(handle);
    expect((dependencies || count == 0) && find_nodes(graph, dependencies, count, ret_before));
    return graph;
}

} // namespace

void api::graph_add_empty_node(CUgraphNode *ph_graph_node, CUgraph h_graph,
                               const CUgraphNode *dependencies, size_t num_dependencies) {
    std::vector<Node *> before;
    Graph &graph = find_place(h_graph, dependencies, num_dependencies, before);
    expect(ph_graph_node);
    *ph_graph_node = append_node(graph, this_thread.call, nullptr, before)->handle;
}

void api::graph_add_mem_alloc_node(CUgraphNode *ph_graph_node, CUgraph h_graph,
                                   const CUgraphNode *dependencies, size_t num_dependencies,
                                   CUDA_MEM_ALLOC_NODE_PARAMS *node_params) {
    std::vector<Node *> before;
    Graph &graph = find_place(h_graph, dependencies, num_dependencies, before);
    expect(ph_graph_node && node_params && node_params->bytesize != 0 &&
           node_params->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
           node_params->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    Device *const device = device_at(node_params->poolProps.location.id);
    expect(device);
    const Region *region = take_for_graph(graph, *device, node_params->bytesize);
    expect(region, CUDA_ERROR_OUT_OF_MEMORY);
    *ph_graph_node = append_node(graph, this_thread.call, bind_write(*region), before)->handle;
    node_params->dptr = region->start;
}

void api::graph_add_mem_free_node(CUgraphNode *ph_graph_node, CUgraph h_graph,
                                  const CUgraphNode *dependencies, size_t num_dependencies,
                                  CUdeviceptr dptr) {
    std::vector<Node *> before;
    Graph &graph = find_place(h_graph, dependencies, num_dependencies, before);
    Region *const region = graph_region(dptr);
    expect(ph_graph_node && region && free_in_graph(graph, *region));
    *ph_graph_node = append_node(graph, this_thread.call, bind_write(*region), before)->handle;
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

void GraphFigures::launched(const Region &region) {
    used[region.id] = {region.start, region.size};
    used_high = std::max(used_high, bytes());
    reserved_high = std::max(reserved_high, bytes());
}

uint64_t GraphFigures::bytes() const {
    constexpr uint64_t piece = uint64_t(32) << 20;
    uint64_t sum = 0;
    for (const auto &[id, part] : used) {
        sum += part.size;
    }
    return (sum + piece - 1) / piece * piece;
}

void api::device_get_graph_mem_attribute(CUdevice dev, CUgraphMem_attribute attr, void *value) {
    Device &device = find_device(dev);
    expect(value);
    const GraphFigures &its = device.graph_figures;
    const std::map<CUgraphMem_attribute, uint64_t> told = {
        {CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, its.bytes()},
        {CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, its.used_high},
        {CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, its.bytes()},
        {CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, its.reserved_high}};
    const auto found = told.find(attr);
    expect(found != told.end());
    std::memcpy(value, &found->second, sizeof found->second);
}

void api::device_set_graph_mem_attribute(CUdevice dev, CUgraphMem_attribute attr, void *value) {
    Device &device = find_device(dev);
    expect(value);
    uint64_t wanted = 1;
    std::memcpy(&wanted, value, sizeof wanted);
    const bool is_used = attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
    expect(wanted == 0 && (is_used || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH));
    GraphFigures &its = device.graph_figures;
    (is_used ? its.used_high : its.reserved_high) = its.bytes();
}

void api::device_graph_mem_trim(CUdevice dev) {
    Device &device = find_device(dev);
    std::erase_if(device.graph_figures.used, [](const auto &each) {
        const Region *const region = sim().regions.at(each.second.start);
        return !region || region->id != each.first || !region->live;
    });
}

} // namespace simcuda
