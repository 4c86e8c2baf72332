#include "top/view.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace emm::tool::top {
namespace {

Json stats_json(const std::optional<emm_stats> &stats) {
    if (!stats) {
        return {};
    }
    return {{"live_bytes", stats->live_bytes},
            {"live_count", stats->live_count},
            {"cached_bytes", stats->cached_bytes},
            {"reserved_bytes", stats->reserved_bytes},
            {"waiting_bytes", stats->pending_bytes},
            {"peak_live_bytes", stats->peak_live_bytes},
            {"peak_reserved_bytes", stats->peak_reserved_bytes},
            {"allocations", stats->allocations},
            {"frees", stats->frees},
            {"failures", stats->failures},
            {"host_live_bytes", stats->host_live_bytes},
            {"host_reserved_bytes", stats->host_reserved_bytes},
            {"largest_free_block", stats->largest_free_block},
            {"paused_bytes", stats->paused_bytes},
            {"spilled_bytes", stats->spilled_bytes}};
}

Json oldest_json(const std::vector<OldAllocation> &oldest) {
    Json list = Json::array();
    for (const OldAllocation &each : oldest) {
        list.push_back({{"size", each.size},
                        {"age_ns", each.age},
                        {"module", text_or_null(each.module)},
                        {"caller", text_or_null(each.caller)}});
    }
    return list;
}

Json account_json(const Account &account) {
    const bool has_limit = account.limit_bytes != 0;
    return {{"limit_bytes", has_limit ? Json(account.limit_bytes) : Json()},
            {"free_bytes", has_limit ? Json(account.free_bytes()) : Json()},
            {"used_bytes", account.used_bytes},
            {"managers_bytes", account.managers_bytes},
            {"program_bytes", account.program_bytes},
            {"group", text_or_null(account.group)}};
}

Json context_json(const Context &context) {
    return {{"device", context.device},
            {"context", context.id},
            {"pool", text_or_null(context.pool)},
            {"spec", text_or_null(context.spec)},
            {"changed_options", text_or_null(context.changed_options)},
            {"uuid", text_or_null(context.uuid)},
            {"pci", text_or_null(context.pci)},
            {"device_bytes", context.total_bytes},
            {"account", account_json(context.account)},
            {"stats", stats_json(context.stats)},
            {"allocations_per_second",
             context.allocations_rate ? Json(*context.allocations_rate) : Json()},
            {"pending_frees", context.pending_frees},
            {"pending_free_bytes", context.pending_free_bytes},
            {"oldest", oldest_json(context.oldest)},
            {"problem", text_or_null(context.problem)}};
}

Json process_json(const Process &process) {
    Json contexts = Json::array();
    for (const Context &context : process.contexts) {
        contexts.push_back(context_json(context));
    }
    return {{"pid", process.pid},
            {"program", text_or_null(process.program)},
            {"command", text_or_null(process.command)},
            {"emm", text_or_null(process.emm)},
            {"plugin", text_or_null(process.plugin)},
            {"plugin_version", text_or_null(process.plugin_version)},
            {"problem", text_or_null(process.problem)},
            {"stuck_ns", process.stuck},
            {"held", process.is_held},
            {"contexts", contexts},
            {"contexts_left_out", process.contexts_left_out}};
}

} // namespace

// A process takes the place of its first context.
Json to_json(const std::vector<Process> &processes, Column by) {
    std::vector<const Process *> order;
    for (const Row &row : sorted_rows(processes, by)) {
        if (std::find(order.begin(), order.end(), row.process) == order.end()) {
            order.push_back(row.process);
        }
    }
    Json list = Json::array();
    for (const Process *process : order) {
        list.push_back(process_json(*process));
    }
    return {{"processes", list}};
}

} // namespace emm::tool::top
