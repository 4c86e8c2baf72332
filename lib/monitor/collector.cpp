#include "monitor/collector.h"

#include "core/lifecycle/lifecycle.h"
#include "core/memory/memory.h"
#include "core/memory/recovery.h"
#include "core/record/asleep.h"
#include "core/reports/holders.h"
#include "core/tracking/tracking.h"
#include "driver/account.h"
#include "driver/copies.h"
#include "observe/callers/python_frames.h"
#include "observe/environment.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/process.h"
#include "observe/program_code.h"
#include "observe/text.h"
#include "sockets/server.h"
#include "sockets/socket.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <utility>

namespace emm::monitor {
namespace {

std::string why_not_serving(const emm_context &context) {
    const emm_status status = core::admit(context);
    return status == EMM_OK ? "" : observe::last_error()->text;
}

std::string last_part(const char *path) {
    const std::string_view text = path ? path : "";
    return std::string(text.substr(text.rfind('/') + 1));
}

// The program's own line of Python, else the innermost one, and the tags: train.py:12 (step)
// [decode]. If only tags are known beside the library, the library's name comes before them.
std::string caller_of(const emm_allocation &allocation) {
    const emm_frame *found = nullptr;
    for (uint32_t i = 0; i < allocation.frame_count; i++) {
        const emm_frame &frame = allocation.frames[i];
        if (frame.function && (!found || observe::is_installed_python(found->module))) {
            found = &frame;
        }
    }
    const std::string tag = allocation.tag ? fmt::format(" [{}]", allocation.tag) : "";
    if (!found) {
        return tag.empty() ? "" : last_part(allocation.module) + tag;
    }
    return fmt::format("{}:{} ({}){}", last_part(found->module), found->line, found->function, tag);
}

// foreach_allocation's visitor: collects large device allocations.
int add_large(const emm_allocation *allocation, void *all) {
    constexpr uint64_t least_large = 1 << 20;
    if (allocation->memory == EMM_EVENT_DEVICE && allocation->size >= least_large) {
        static_cast<std::vector<OldAllocation> *>(all)->push_back(
            {allocation->size, static_cast<int64_t>(allocation->age_ns),
             allocation->module ? allocation->module : "", caller_of(*allocation)});
    }
    return 0;
}

} // namespace

ContextFigures identify(const emm_context &context) {
    ContextFigures figures;
    figures.device = context.device;
    figures.id = context.id;
    figures.pool = context.pool;
    figures.spec = context.selection ? context.selection->spec : "";
    for (const auto &[key, value] : context.announced.options()) {
        figures.changed_options += (figures.changed_options.empty() ? "" : ",") + key;
        figures.changed_options += value ? "=" + *value : "";
    }
    std::memcpy(figures.uuid, context.uuid, sizeof figures.uuid);
    std::memcpy(figures.pci, context.pci, sizeof figures.pci);
    figures.total_bytes = core::obtainable_memory(context);
    figures.pending_frees = context.pending.count();
    figures.pending_free_bytes = context.pending.bytes();
    figures.problem = "the plugin has not answered yet";
    return figures;
}

void ask(emm_context &context, ContextFigures &ret_figures) {
    const core::OwnerGuard guard(context.manager_lock, std::try_to_lock);
    if (!guard.owns()) {
        ret_figures.problem = "its manager is being created, reset or destroyed";
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
    if (!core::keeps_figures(context)) {
        ret_figures.problem = "the plugin keeps no figures";
        return;
    }
    auto stats = observe::sized<emm_stats>();
    if (core::get_stats(context, &stats) < EMM_OK) {
        ret_figures.problem = observe::last_error()->text;
        return;
    }
    ret_figures.stats = stats;
    ret_figures.oldest = oldest_allocations(context);
    ret_figures.at = sockets::now();
}

AccountFigures ask_account(int32_t device) {
    const driver::Account::Figures its = driver::account().figures(device);
    return {its.bound, its.used, driver::bounded_sum(its.rows[size_t(driver::Holder::managers)]),
            driver::bounded_sum(its.rows[size_t(driver::Holder::program)]),
            std::string(its.bound == 0 ? "" : observe::environment("EMM_LIMIT_SHARED"))};
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

namespace {

std::vector<emm_context *> oldest_first() {
    std::vector<emm_context *> all;
    for (emm_context *context = core::first_context(); context; context = context->next) {
        if ((context->state.load() & core::state_late) == 0) {
            all.push_back(context);
        }
    }
    std::reverse(all.begin(), all.end());
    return all;
}

// The lines of core/reports/holders.h, which go to the log, too.
std::string write_report() {
    const std::vector<std::string> lines = core::memory_report_lines();
    core::write_report(lines);
    return lines.empty() ? "no context is served" : fmt::format("{}", fmt::join(lines, "\n"));
}

Collected not_asked(const char *why) {
    Collected found;
    found.set_problem = std::string(why) + "; nothing has changed";
    for (const emm_context *context : oldest_first()) {
        found.contexts.push_back(identify(*context));
        found.contexts.back().problem = why;
    }
    return found;
}

// Empty if live device memory fits, or the plugin tells no total. Spilled memory is host memory,
// and does not count.
std::string live_above(emm_context &context) {
    size_t free = 0, total = 0;
    auto stats = observe::sized<emm_stats>();
    if (core::get_memory_info(context, &free, &total) < EMM_OK ||
        core::get_stats(context, &stats) < EMM_OK) {
        return "";
    }
    const uint64_t live = stats.live_bytes - std::min(stats.live_bytes, stats.spilled_bytes);
    return live > total
               ? fmt::format("{} of {} are live, {} above its limit, which applies to new requests",
                             observe::bytes_text(live), context, observe::bytes_text(live - total))
               : "";
}

} // namespace

void change_option(std::string_view setting, Collected &ret_collected) {
    const std::string_view option = setting.substr(0, setting.find('\0'));
    const std::string_view pool = setting.substr(std::min(option.size() + 1, setting.size()));
    const size_t equals = std::min(option.find('='), option.size());
    const std::string key(option.substr(0, equals));
    const std::string value(option.substr(std::min(equals + 1, option.size())));
    std::set<std::string> names;
    std::string problem;
    for (emm_context *context : oldest_first()) {
        names.insert(context->pool);
        if (context->pool != pool || !problem.empty() || !core::is_served(*context)) {
            continue;
        }
        const char *const text = value.empty() ? nullptr : value.c_str();
        if (core::set_option(*context, key.c_str(), text) < EMM_OK) {
            problem = fmt::format("{}: {}", *context, observe::last_error()->text);
        } else {
            ret_collected.set_pools++;
            const std::string above = key == "max" ? live_above(*context) : "";
            ret_collected.set_above = above.empty() ? ret_collected.set_above : above;
        }
    }
    if (problem.empty() && ret_collected.set_pools == 0) {
        names.erase("");
        problem = fmt::format("no pool has the name '{}': {}", pool,
                              names.empty() ? std::string("it has no named pools")
                                            : fmt::format("it has {}", fmt::join(names, ", ")));
        problem = pool.empty() ? "no context is served" : problem;
    }
    ret_collected.set_problem = problem;
}

// Waits in steps, by a clock that the thread sanitizer knows; another clock decides the end.
bool Collector::wait(std::unique_lock<std::mutex> &lock, int64_t until) {
    while (is_busy_ && sockets::now() < until) {
        answered_.wait_until(lock,
                             std::chrono::system_clock::now() + std::chrono::milliseconds(20));
    }
    return !is_busy_;
}

// The mutex is held. False: no thread could be started.
bool Collector::begin(RequestKind kind, std::string_view rest) {
    std::string kept(rest);
    if (!has_thread_ && !sockets::start_thread("emm-top-ask", [this] { run(); })) {
        return false;
    }
    has_thread_ = true;
    is_busy_ = true;
    kind_ = kind;
    rest_ = std::move(kept);
    since_ = sockets::now();
    found_ = {};
    asked_.notify_one();
    return true;
}

Collected Collector::collect(RequestKind kind, int64_t timeout, std::string_view rest) {
    std::unique_lock lock(mutex_);
    if (has_ended_) {
        return not_asked("the process ends");
    }
    const bool is_late = is_busy_; // an earlier request is still running
    if (!is_busy_ && !begin(kind, rest)) {
        return not_asked("cannot start a thread to ask the plugin");
    }
    wait(lock, since_ + timeout);
    Collected found = found_;
    if (is_late) {
        found.set_problem = "its plugin is still busy with an earlier request; nothing has changed";
        found.set_pools = 0;
    }
    found.stuck = is_busy_ ? sockets::now() - since_ : 0;
    return found;
}

void Collector::end(int64_t timeout) noexcept {
    std::unique_lock lock(mutex_);
    has_ended_ = true;
    wait(lock, sockets::now() + timeout);
}

void Collector::run() noexcept {
    for (;;) {
        RequestKind kind;
        std::string rest;
        {
            std::unique_lock lock(mutex_);
            asked_.wait(lock, [this] { return is_busy_; });
            kind = kind_;
            rest.swap(rest_);
        }
        try {
            work(kind, rest);
        } catch (const std::exception &error) {
            observe::log(EMM_LOG_WARN, "emm top gets only a part of the figures: {}", error.what());
        }
        const std::lock_guard lock(mutex_);
        is_busy_ = false;
        answered_.notify_all();
    }
}

// While the process sleeps by emm pause, the program's log callback and finalizers might wait for a
// call that is held.
void Collector::work(RequestKind kind, const std::string &rest) {
    const observe::NoProgramCode no_program_code(core::must_wait_asleep());
    if (kind == RequestKind::set) {
        Collected changed;
        if (has_ended()) {
            changed.set_problem = "the process ends; nothing has changed";
        } else {
            change_option(rest, changed);
        }
        const std::lock_guard lock(mutex_);
        found_ = std::move(changed);
        return;
    }
    if (kind == RequestKind::profile) {
        core::LiveProfile profile = core::live_profile();
        const std::lock_guard lock(mutex_);
        found_.profile = std::move(profile);
        return;
    }
    if (kind == RequestKind::trim && !has_ended()) {
        core::give_back_idle();
        driver::ask_copies();
    }
    for (emm_context *context : oldest_first()) {
        work_on(*context);
    }
    if (kind == RequestKind::report) {
        std::string report = write_report();
        const std::lock_guard lock(mutex_);
        found_.report = std::move(report);
    }
}

bool Collector::has_ended() {
    const std::lock_guard lock(mutex_);
    return has_ended_;
}

void Collector::work_on(emm_context &context) {
    ContextFigures figures = identify(context);
    {
        const std::lock_guard lock(mutex_);
        if (has_ended_) {
            return;
        }
        found_.contexts.push_back(figures);
    }
    ask(context, figures);
    figures.account = ask_account(context.device);
    const std::lock_guard lock(mutex_);
    found_.contexts.back() = std::move(figures);
}

} // namespace emm::monitor
