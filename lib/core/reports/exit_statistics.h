#pragma once

#include "core/record/context.h"

#include <emm/plugin.h>

#include <optional>
#include <string>
#include <vector>

// EMM_STATS=exit: at the process's end, a table of each context's figures. With EMM_TRACK also live
// memory by caller, at the end and when a context was reset or ended.
namespace emm::core {

// One row. `stats` is empty if the plugin keeps no figures, or they could not be had.
struct ContextStatistics {
    std::string context, plugin;
    std::optional<emm_stats> stats;
    uint64_t failures = 0, pressure_runs = 0;
};

// Columns as wide as their texts; every line ends with a line end.
std::string statistics_table(const std::vector<ContextStatistics> &rows);

// Has the table written at exit if EMM_STATS asks for it. Call this when the first context serves:
// plugin and driver are loaded then, so their exit handlers come later.
void report_statistics_at_exit() noexcept;

// If the table will be written, keeps the figures of a context that is about to be retired.
void keep_statistics(emm_context &context) noexcept;

// The context's memory is gone: forgets its callers (EMM_TRACK), and keeps them for the table's end
// if that will be written.
void drop_tracked(const emm_context &context, bool by_reset) noexcept;

} // namespace emm::core
