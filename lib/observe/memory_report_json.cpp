// The report as JSON, for tools and for the error of a failed allocation.
#include "observe/json.h"
#include "observe/memory_report.h"
#include "observe/text.h"

#include <fmt/format.h>

namespace emm::observe {
namespace {

std::string holders_json(const std::vector<MemoryHolder> &holders) {
    return json_array(holders, [](const MemoryHolder &holder) {
        return fmt::format(R"({{"name":{},"bytes":{},"allocations":{}}})",
                           json_quoted(one_line(holder.name)), holder.bytes, holder.count);
    });
}

std::string request_json(const MemoryReport &report) {
    if (!report.request) {
        return "null";
    }
    const MemoryReport::Request &request = *report.request;
    return fmt::format(R"({{"bytes":{},"memory":"{}","pool":{},"caller":{}}})", request.bytes,
                       request.of_host ? "host" : "device",
                       json_quoted_or_null(report.of_pool ? one_line(report.of_pool->name) : ""),
                       json_quoted_or_null(one_line(request.caller)));
}

std::string plugin_json(const MemoryReport &report) {
    const std::string name = json_quoted(one_line(report.plugin));
    const auto &plugin = report.of_plugin;
    if (!plugin) {
        return fmt::format(R"({{"name":{}}})", name);
    }
    return fmt::format(R"({{"name":{},"live_bytes":{},"live_count":{},"cached_bytes":{},)"
                       R"("pending_bytes":{},"reserved_bytes":{},"spilled_bytes":{},)"
                       R"("host_live_bytes":{}}})",
                       name, plugin->live_bytes, plugin->live_count, plugin->cached_bytes,
                       plugin->pending_bytes, plugin->reserved_bytes, plugin->spilled_bytes,
                       plugin->host_live_bytes);
}

template <class Memory> std::string free_and_total_json(const Memory &memory) {
    return fmt::format(R"({{"free":{},"total":{}}})", memory.free, memory.total);
}

std::string processes_json(const MemoryReport &report) {
    if (!report.processes) {
        return "null";
    }
    return json_array(*report.processes, [&](const DeviceProcess &process) {
        return fmt::format(R"({{"pid":{},"name":{},"bytes":{},"own":{}}})", process.id,
                           json_quoted(one_line(process.name)), process.bytes,
                           process.id == report.own_process);
    });
}

std::string remainder_json(const MemoryReport &report) {
    const auto remainder = remainder_of(report);
    return remainder ? fmt::format(R"({{"bytes":{},"includes_others":{}}})", remainder->bytes,
                                   remainder->includes_others)
                     : "null";
}

std::string tracked_json(const MemoryReport &report) {
    if (!report.tracked) {
        return "null";
    }
    const MemoryReport::Tracked &tracked = *report.tracked;
    return fmt::format(R"({{"sample":{},"lost":{},"of_pool":{},"libraries":{},"callers":{},)"
                       R"("of_driver":{}}})",
                       tracked.sample, tracked.lost, tracked.of_pool,
                       holders_json(tracked.libraries), holders_json(tracked.callers),
                       holders_json(tracked.of_driver));
}

} // namespace

std::string report_json(const MemoryReport &report) {
    const bool has_largest = report.of_plugin && is_largest_told(*report.of_plugin);
    return fmt::format(
        R"({{"memory":{{"request":{},"device":{},"plugin":{},"driver":{},"limit":{},"bound":{},)"
        R"("full":{},"largest_free_block":{},"processes":{},"remainder":{},"tracked":{},)"
        R"("hints":{}}}}})",
        request_json(report), report.device, plugin_json(report),
        report.of_driver ? free_and_total_json(*report.of_driver) : "null",
        is_limited(report) ? free_and_total_json(*report.of_pool) : "null",
        json_quoted(report.bound), json_quoted(full_of(report)),
        has_largest ? std::to_string(report.of_plugin->largest_free_block) : "null",
        processes_json(report), remainder_json(report), tracked_json(report),
        json_array(hints_for(report)));
}

} // namespace emm::observe
