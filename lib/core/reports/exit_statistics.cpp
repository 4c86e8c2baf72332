#include "core/reports/exit_statistics.h"

#include "core/memory/memory.h"
#include "core/reports/holders.h"
#include "core/tracking/tracking.h"
#include "loader/plugin.h"
#include "observe/environment.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/process.h"
#include "observe/text.h"
#include "sockets/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <semaphore>
#include <unistd.h>

namespace emm::core {
namespace {

using Row = std::vector<std::string>;

std::atomic<pid_t> reporting{0}; // the process that will write the table

bool is_reporting() noexcept {
    return reporting.load(std::memory_order_relaxed) == getpid() && !observe::is_forked_child();
}

std::string in_mib(uint64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
}

Row row_of(const ContextStatistics &one) {
    const emm_stats stats = one.stats.value_or(emm_stats());
    Row figures = {std::to_string(stats.allocations), std::to_string(stats.frees)};
    for (const uint64_t bytes : {stats.live_bytes, stats.peak_live_bytes, stats.cached_bytes,
                                 stats.pending_bytes, stats.reserved_bytes}) {
        figures.push_back(in_mib(bytes));
    }
    if (!one.stats) {
        figures.assign(figures.size(), "-");
    }
    figures.insert(figures.begin() + 2, std::to_string(one.failures)); // behind the frees
    Row row = {one.context, one.plugin};
    row.insert(row.end(), figures.begin(), figures.end());
    row.push_back(std::to_string(one.pressure_runs));
    return row;
}

// Texts to the left, figures to the right.
std::string aligned(const std::vector<Row> &rows) {
    constexpr size_t texts = 2;
    std::vector<size_t> widths(rows.front().size());
    for (const Row &row : rows) {
        for (size_t i = 0; i < row.size(); ++i) {
            widths[i] = std::max(widths[i], row[i].size());
        }
    }
    std::string text;
    for (const Row &row : rows) {
        for (size_t i = 0; i < row.size(); ++i) {
            text += i < texts ? fmt::format("{}{:<{}}", i == 0 ? "" : "  ", row[i], widths[i])
                              : fmt::format("  {:>{}}", row[i], widths[i]);
        }
        text += '\n';
    }
    return text;
}

ContextStatistics statistics_of(emm_context &context) {
    ContextStatistics one = {fmt::format("{}", context),
                             context.selection ? context.selection->spec : "-", std::nullopt,
                             context.failures.load(std::memory_order_relaxed),
                             context.pressure_runs.load(std::memory_order_relaxed)};
    auto stats = observe::sized<emm_stats>();
    const OwnerGuard guard(context.manager_lock, std::try_to_lock);
    if (context.has_last_stats.load(std::memory_order_acquire)) {
        one.stats = context.last_stats;
    } else if (guard.owns() && keeps_figures(context) && get_stats(context, &stats) >= EMM_OK) {
        one.stats = stats;
    }
    return one;
}

// Only reads, because other threads may be at work. "": no memory for the table.
std::string statistics_text() noexcept {
    try {
        std::vector<ContextStatistics> rows;
        for (emm_context *context = first_context(); context; context = context->next) {
            rows.insert(rows.begin(), statistics_of(*context));
        }
        std::string text = fmt::format("statistics of emm, {} (process {})\n{}",
                                       observe::one_line(observe::program_name()), getpid(),
                                       statistics_table(rows));
        for (const std::string &line : leak_report_lines()) {
            text += line + '\n';
        }
        text.pop_back(); // the log's line adds the line end
        return text;
    } catch (const std::exception &) {
        return "";
    }
}

struct Told {
    std::string text;
    std::binary_semaphore done{0};
};

// A forked child reports nothing. exit() in a signal handler may interrupt a call that holds locks
// of the plugin or of the driver. So another thread asks, and the process waits for a bounded time.
void write_statistics() noexcept {
    constexpr auto longest_wait = std::chrono::seconds(3);
    if (!is_reporting()) {
        return;
    }
    Told &told = observe::immortal<Told>();
    const auto tell = [&told] {
        told.text = statistics_text();
        told.done.release();
    };
    if (!sockets::start_thread("emm-stats", tell)) {
        tell();
    }
    if (!told.done.try_acquire_for(longest_wait)) {
        observe::log(EMM_LOG_WARN, "EMM_STATS: no table, because a call was under way at the end");
    } else if (!told.text.empty()) {
        observe::report(told.text);
    }
}

bool is_wanted() noexcept {
    return observe::setting("EMM_STATS") == "exit";
}

} // namespace

std::string statistics_table(const std::vector<ContextStatistics> &rows) {
    std::vector<Row> all = {{"context", "plugin", "allocations", "frees", "failures", "live MiB",
                             "peak MiB", "cached MiB", "pending MiB", "reserved MiB",
                             "pressure runs"}};
    for (const ContextStatistics &one : rows) {
        all.push_back(row_of(one));
    }
    return aligned(all);
}

void report_statistics_at_exit() noexcept {
    static const bool registered = is_wanted() && std::atexit(&write_statistics) == 0;
    if (registered && reporting.load(std::memory_order_relaxed) == 0) {
        reporting.store(getpid(), std::memory_order_relaxed);
    }
}

void keep_statistics(emm_context &context) noexcept {
    const observe::Preserved said;
    auto stats = observe::sized<emm_stats>();
    if (is_reporting() && !context.has_last_stats.load(std::memory_order_relaxed) &&
        keeps_figures(context) && get_stats(context, &stats) >= EMM_OK) {
        context.last_stats = stats;
        context.has_last_stats.store(true, std::memory_order_release);
    }
}

void drop_tracked(const emm_context &context, bool by_reset) noexcept {
    try {
        if (is_reporting() && is_tracking()) {
            keep_dropped(context, by_reset);
        }
    } catch (const std::exception &) {
        observe::log(EMM_LOG_WARN, "EMM_STATS: no host memory to record the figures of {}",
                     context);
    }
    forget_tracked(context);
}

} // namespace emm::core
