#include "monitor/figures.h"

#include "core/account/tracking.h"
#include "core/memory/memory.h"
#include "observe/callers/python_files.h"
#include "observe/error.h"
#include "sockets/socket.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace emm::monitor {
namespace {

std::string why_not_serving(const emm_context &context) {
    const emm_status status = core::admit(context);
    return status == EMM_OK ? "" : observe::last_error()->text;
}

// The program's own line of Python, else the innermost: train.py:12 (step).
std::string python_caller(const emm_allocation &allocation) {
    const emm_frame *found = nullptr;
    for (uint32_t i = 0; i < allocation.frame_count; i++) {
        const emm_frame &frame = allocation.frames[i];
        if (frame.function && (!found || observe::is_installed_python(found->module))) {
            found = &frame;
        }
    }
    const std::string_view file = found ? found->module : "";
    return found ? fmt::format("{}:{} ({})", file.substr(file.rfind('/') + 1), found->line,
                               found->function)
                 : "";
}

// What foreach_allocation visits, as far as it is large and on the device.
int add_large(const emm_allocation *allocation, void *all) {
    constexpr uint64_t least_large = 1 << 20;
    if (allocation->memory == EMM_EVENT_DEVICE && allocation->size >= least_large) {
        static_cast<std::vector<OldAllocation> *>(all)->push_back(
            {allocation->size, static_cast<int64_t>(allocation->age_ns),
             allocation->module ? allocation->module : "", python_caller(*allocation)});
    }
    return 0;
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
    ret_figures.at = sockets::now();
}

std::vector<OldAllocation> oldest_allocations(const emm_context &context) {
    std::vector<OldAllocation> all;
    if (core::is_tracking()) {
        core::foreach_allocation(context, &add_large, &all);
    }
    const size_t kept = std::min(all.size(), most_oldest);
    const auto end = all.begin() + static_cast<ptrdiff_t>(kept);
    std::partial_sort(
        all.begin(), end, all.end(),
        [](const OldAllocation &one, const OldAllocation &other) { return one.age > other.age; });
    all.resize(kept);
    return all;
}

} // namespace emm::monitor
