#include "report/document.h"

#include "report/address_map.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

Json groups_json(const GroupSet &groups) {
    Json all = Json::array();
    for (size_t i = 0; i < groups.labels.size(); i++) {
        all.push_back(
            {{"name", groups.labels[i]}, {"bytes", groups.bytes[i]}, {"blocks", groups.blocks[i]}});
    }
    return all;
}

uint64_t live_after(const History &history, size_t last) {
    uint64_t live = 0;
    for (size_t step = 0; step <= last; step++) {
        const uint64_t size = history.block_of(step).size;
        live = history.is_free(step) ? live - size : live + size;
    }
    return live;
}

size_t largest_of(const std::vector<uint64_t> &values) {
    return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

// The moment of those at which get_stats was asked.
size_t most_reserved(const Json &samples) {
    return largest_of(samples.at("reserved").get<std::vector<uint64_t>>());
}
size_t most_idle(const Json &samples) {
    std::vector<uint64_t> idle;
    for (size_t i = 0; i < samples.at("step").size(); i++) {
        const auto reserved = samples.at("reserved")[i].get<uint64_t>();
        idle.push_back(reserved - std::min(reserved, samples.at("live")[i].get<uint64_t>()));
    }
    return largest_of(idle);
}

// The answer of get_stats at that sample.
Json parts_at(const Json &samples, size_t at) {
    if (samples.at("step").empty()) {
        return nullptr;
    }
    const auto figure = [&](const char *key) { return samples.at(key)[at].get<uint64_t>(); };
    const uint64_t known = figure("live") + figure("cached") + figure("pending");
    const uint64_t reserved = figure("reserved");
    return {{"event", figure("step")},      {"reserved", reserved},
            {"live", figure("live")},       {"cached", figure("cached")},
            {"pending", figure("pending")}, {"rest", reserved - std::min(reserved, known)}};
}

Json gaps_json(const Gaps &gaps) {
    return {{"count", gaps.count}, {"bytes", gaps.bytes}, {"largest", gaps.largest}};
}

Json part_json(const FreePart &part) {
    return {{"bytes", part.bytes}, {"largest", part.largest}};
}

// The rest of the memory that was not live: no block ever had it. If blocks had more than that,
// memory had gone back to the driver.
Json free_json(const FreeMemory &memory, const std::string &stream, uint64_t idle) {
    const uint64_t freed = memory.own.bytes + memory.other.bytes + memory.unordered.bytes;
    return {{"stream", stream},
            {"own_stream", part_json(memory.own)},
            {"other_streams", part_json(memory.other)},
            {"no_stream", part_json(memory.unordered)},
            {"never_used", idle - std::min(idle, freed)},
            {"given_back", freed - std::min(idle, freed)}};
}

// The plugin's memory before the event after which the most was reserved: why the plugin took more.
Json growth_json(const Replayed &replayed, const History &history, const AddressRow &row,
                 uint32_t step) {
    if (step == 0 || history.is_free(step)) {
        return nullptr; // no memory was there, or a free made the plugin take more
    }
    const uint64_t live = live_after(history, step - 1), reserved = replayed.reserved[step - 1];
    const uint64_t idle = reserved - std::min(reserved, live);
    return {{"asked", history.block_of(step).size},
            {"reserved_before", reserved},
            {"idle_before", idle},
            {"free_before", free_json(free_memory_before(history, replayed.addresses, step),
                                      history.streams.text(history.block_of(step).stream), idle)},
            {"gaps_before", gaps_json(gaps_at(history, replayed.addresses, row, step - 1))}};
}

uint64_t sum_of(const Json &calls) {
    uint64_t sum = 0;
    for (const auto &[name, count] : calls.items()) {
        sum += count.get<uint64_t>();
    }
    return sum;
}

} // namespace

std::string name_of(Memory memory) {
    switch (memory) {
    case Memory::device:
        return "device memory";
    case Memory::pinned:
        return "pinned host memory";
    case Memory::registered:
        return "registered host memory";
    case Memory::managed:
        return "managed memory";
    }
    return "";
}

Json figures_of(const History &history, const Peak &peak, const std::vector<GroupSet> &groups) {
    const Left left = left_of(history);
    double allocated = 0; // may be more than 2^64
    for (const Allocation &block : history.blocks) {
        allocated += static_cast<double>(block.size);
    }
    Json at_peak = Json::object();
    for (const GroupSet &one : groups) {
        at_peak[one.name] = groups_json(one);
    }
    return {{"device", history.device},
            {"memory", name_of(history.memory)},
            {"allocations", history.blocks.size() - history.live_before},
            {"live_before", history.live_before},
            {"frees", history.steps.size() - history.blocks.size() - history.drops.all()},
            {"dropped_by_reset", history.drops.by_reset},
            {"dropped_with_context", history.drops.with_context},
            {"allocated_bytes", allocated},
            {"peak_live_bytes", peak.bytes},
            {"peak_live_blocks", peak.blocks},
            {"peak_event", peak.step},
            {"peak_time_ns", peak.time},
            {"left_bytes", left.bytes},
            {"left_blocks", left.blocks},
            {"leading", groups[leading_of(groups)].name},
            {"at_peak", at_peak}};
}

Json figures_of(const Replayed &replayed, const History &history, const Peak &peak) {
    Json figures = {{"plugin", replayed.plugin}, {"is_recorded", replayed.is_recorded}};
    if (replayed.problem) {
        figures.update(to_json(*replayed.problem));
        return figures;
    }
    const std::vector<uint64_t> &reserved = replayed.reserved;
    const auto step = static_cast<uint32_t>(largest_of(reserved));
    const AddressRow row(history, replayed.addresses, 1);
    const Json &result = replayed.result;
    figures.update(
        {{"simulated", replayed.driver.at("simulated")},
         {"peak_reserved_bytes", reserved[step]},
         {"peak_within_calls_bytes", result.at("peak_reserved_bytes")},
         {"peak_reserved_event", step},
         {"peak_reserved_time_ns", history.time_of(step)},
         {"live_then_bytes", live_after(history, step)},
         {"reserved_at_peak_live", reserved[peak.step]},
         {"when_most_reserved", parts_at(replayed.samples, most_reserved(replayed.samples))},
         {"when_most_idle", parts_at(replayed.samples, most_idle(replayed.samples))},
         {"growth", growth_json(replayed, history, row, step)},
         {"gaps_then", gaps_json(gaps_at(history, replayed.addresses, row, step))},
         {"failed", result.at("failed")},
         {"leaked", result.at("leaked")},
         {"driver_calls_total", sum_of(result.at("driver_calls"))},
         {"driver_calls", result.at("driver_calls")},
         {"ns_per_event", result.at("ns_per_event").at("mean")},
         {"notes", replayed.notes}});
    return figures;
}

} // namespace emm::tool
