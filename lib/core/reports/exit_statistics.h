#pragma once

#include "core/record/context.h"

#include <emm/plugin.h>

#include <optional>
#include <string>
#include <vector>

// EMM_STATS=exit: a table of what each context has done, at the process's end; and with EMM_TRACK
// what is still allocated then, or was when a context was reset or ended, by caller.
namespace emm::core {

// One row. `stats`: none if they could not be had.
struct ContextStatistics {
    std::string context, plugin;
    std::optional<emm_stats> stats;
    uint64_t pressure_runs = 0;
};

// Columns as wide as their texts; every line ends with a line end.
std::string statistics_table(const std::vector<ContextStatistics> &rows);

// Has the table written at exit if EMM_STATS asks for it. To be called when the first context
// serves: plugin and driver are loaded then, so their own exit handlers come later.
void report_statistics_at_exit() noexcept;

// Keeps what a context that is about to be retired has done, if the table will be written.
void keep_statistics(emm_context &context) noexcept;

// The memory of the context is gone: forgets who asked for it (EMM_TRACK), and keeps that for the
// table's end if that will be written.
void drop_tracked(const emm_context &context, bool by_reset) noexcept;

} // namespace emm::core
