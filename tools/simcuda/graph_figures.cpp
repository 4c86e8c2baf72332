#include "device.h"

#include "call.h"
#include "simulator.h"

#include <algorithm>
#include <cstring>

namespace simcuda {

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
