#include "graph_figures.h"

#include "server.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace emm::run {

void GraphFigures::launched(uint64_t id, uint64_t address, uint64_t size,
                            const emm_context *context) noexcept try {
    const std::lock_guard lock(mutex_);
    Bytes &bytes = bytes_[context];
    if (counted_.emplace(id, Counted{address, size, context}).second) {
        bytes.now += size;
        bytes.used_high = std::max(bytes.used_high, bytes.now);
        bytes.reserved_high = std::max(bytes.reserved_high, bytes.now);
    }
} catch (const std::bad_alloc &) {
    return;
}

GraphFigures::Bytes GraphFigures::in(const emm_context *context) {
    const std::lock_guard lock(mutex_);
    const auto found = bytes_.find(context);
    return found == bytes_.end() ? Bytes() : found->second;
}

void GraphFigures::forget(const emm_context *context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(counted_, [&](const auto &each) { return each.second.context == context; });
    bytes_.erase(context);
}

void GraphFigures::reset_used_high(const emm_context *context) {
    const std::lock_guard lock(mutex_);
    bytes_[context].used_high = bytes_[context].now;
}

void GraphFigures::reset_reserved_high(const emm_context *context) {
    const std::lock_guard lock(mutex_);
    bytes_[context].reserved_high = bytes_[context].now;
}

namespace {

uint64_t bytes_of(const GraphFigures::Bytes &bytes, CUgraphMem_attribute attribute) {
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        return bytes.used_high;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        return bytes.reserved_high;
    default:
        return bytes.now;
    }
}

// Adds emm's memory of graphs to the driver's figure.
void got_graph_mem_attribute(CUdevice device, CUgraphMem_attribute attribute, void *ret_value) {
    const auto kept = server().contexts.keep();
    cuuint64_t sum = 0;
    std::memcpy(&sum, ret_value, sizeof sum);
    for (const emm_context *context : server().contexts.all_on(device)) {
        sum += bytes_of(server().allocations.graph_figures.in(context), attribute);
    }
    std::memcpy(ret_value, &sum, sizeof sum);
}

void set_graph_mem_attribute(CUdevice device, CUgraphMem_attribute attribute, void *) {
    const auto kept = server().contexts.keep();
    GraphFigures &figures = server().allocations.graph_figures;
    for (const emm_context *context : server().contexts.all_on(device)) {
        attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ? figures.reset_used_high(context)
                                                     : figures.reset_reserved_high(context);
    }
}

// emm has no memory of its own to trim: freed memory is the plugin's, or goes with its graph.
void trimmed_graph_mem(CUdevice device) {
    const auto kept = server().contexts.keep();
    Allocations &allocations = server().allocations;
    const auto is_freed = [&](uint64_t address, uint64_t id) {
        const Allocation found = allocations.find(address);
        return found.address == 0 || found.id != id || found.freed;
    };
    for (const emm_context *context : server().contexts.all_on(device)) {
        allocations.graph_figures.trim(context, is_freed);
    }
}

} // namespace

void serve_graph_figures(Entries &entries) {
    watch<served_cuDeviceGetGraphMemAttribute, &got_graph_mem_attribute>(entries);
    watch<served_cuDeviceSetGraphMemAttribute, &set_graph_mem_attribute>(entries);
    watch<served_cuDeviceGraphMemTrim, &trimmed_graph_mem>(entries);
}

} // namespace emm::run
