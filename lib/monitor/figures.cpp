#include "monitor/figures.h"

#include "core/memory.h"
#include "ipc/wire.h"
#include "observe/error.h"

#include <fmt/format.h>

#include <cstring>
#include <unistd.h>

namespace emm::monitor {
namespace {

std::string why_not_serving(const emm_context &context) {
    const emm_status status = core::admit(context);
    return status == EMM_OK ? "" : observe::last_error()->text;
}

std::string mebibytes(uint64_t bytes) {
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string describe(const ContextFigures &context) {
    std::string text = fmt::format("device {}, context {}: ", context.device, context.id);
    if (context.stats) {
        const emm_stats &stats = *context.stats;
        text += fmt::format(
            "live {} in {} allocations, cached {}, waiting {}, reserved {} (peaks: live {}, "
            "reserved {}), pinned {}, {} allocations, {} frees, {} failures",
            mebibytes(stats.live_bytes), stats.live_count, mebibytes(stats.cached_bytes),
            mebibytes(stats.pending_bytes), mebibytes(stats.reserved_bytes),
            mebibytes(stats.peak_live_bytes), mebibytes(stats.peak_reserved_bytes),
            mebibytes(stats.host_live_bytes), stats.allocations, stats.frees, stats.failures);
    } else {
        text += context.problem;
    }
    return text + fmt::format("; {} frees pending for {}", context.pending_frees,
                              mebibytes(context.pending_free_bytes));
}

} // namespace

ContextFigures identify(const emm_context &context) {
    ContextFigures figures;
    figures.device = context.device;
    figures.id = context.id;
    std::memcpy(figures.uuid, context.uuid, sizeof figures.uuid);
    std::memcpy(figures.pci, context.pci, sizeof figures.pci);
    figures.total_bytes = context.total_memory;
    figures.pending_frees = context.pending.count();
    figures.pending_free_bytes = context.pending.bytes();
    figures.problem = "the plugin has not answered yet";
    return figures;
}

void ask(emm_context &context, ContextFigures &ret_figures) {
    const core::OwnerGuard guard(context.manager_lock, std::try_to_lock);
    if (!guard.owns()) {
        ret_figures.problem = "its manager is being made, reset or given up";
        return;
    }
    ret_figures.problem = why_not_serving(context);
    if (!ret_figures.problem.empty()) {
        return;
    }
    if (!core::is_alive(context)) {
        ret_figures.problem = "its CUDA context has been destroyed";
        return;
    }
    if (context.selection->plugin->defaults(loader::Slot::get_stats)) {
        ret_figures.problem = "the plugin keeps no figures";
        return;
    }
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    if (core::get_stats(context, &stats) < EMM_OK) {
        ret_figures.problem = observe::last_error()->text;
        return;
    }
    ret_figures.stats = stats;
    ret_figures.oldest = oldest_allocations(context);
    ret_figures.at = ipc::now();
}

// No process tracks them so far: emm keeps nothing for each allocation.
std::vector<OldAllocation> oldest_allocations(emm_context &) {
    return {};
}

std::string describe_memory(const std::vector<ContextFigures> &contexts) {
    std::string text = fmt::format("memory of process {}", getpid());
    for (const ContextFigures &context : contexts) {
        text += "\n  " + describe(context);
    }
    return contexts.empty() ? text + ": no context is served" : text;
}

} // namespace emm::monitor
