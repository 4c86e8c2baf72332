#include "core/reports/holders.h"

#include "core/memory/memory.h"
#include "core/memory/recovery.h"
#include "core/record/this_thread.h"
#include "core/tracking/tracking.h"
#include "driver/account.h"
#include "driver/nvml.h"
#include "observe/callers/python_frames.h"
#include "observe/callers/walk.h"
#include "observe/environment.h"
#include "observe/error.h"
#include "observe/events/module.h"
#include "observe/file.h"
#include "observe/log.h"
#include "observe/memory_page.h"
#include "observe/process.h"
#include "observe/read_write.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <compare>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <set>
#include <unistd.h>

namespace emm::core {
namespace {

using observe::MemoryHolder;
using observe::MemoryReport;

constexpr size_t most_holders = 10;
constexpr auto between_reports = std::chrono::seconds(10);

// "/usr/bin/train+0x1234 (step(int)+0x42)"
std::string native_name(const std::string &path, uint64_t offset) {
    if (path.empty()) {
        return fmt::format("{:#x}, in no file", offset);
    }
    const std::string symbol = observe::symbol_at(path, offset);
    return symbol.empty() ? fmt::format("{}+{:#x}", path, offset)
                          : fmt::format("{}+{:#x} ({})", path, offset, symbol);
}

// The part of a call stack that tells the most, the innermost call first: the lines of Python from
// the program's own on, or without Python all calls. The texts of frames live as long as the
// process, once each.
struct CallPath {
    struct Step {
        const char *module, *function; // function: of Python, else NULL
        uint64_t offset;
        uint32_t line;
        auto operator<=>(const Step &) const = default;
    };
    std::vector<Step> steps;
    const observe::Tag *tag = nullptr;
    auto operator<=>(const CallPath &) const = default;
};

CallPath path_of(const TrackedAllocation &record) {
    constexpr size_t most_steps = 4;
    if (!record.stack || record.stack->frames.empty()) {
        const std::string &module = observe::modules().path(record.module);
        return {{{module.empty() ? nullptr : module.c_str(), nullptr, record.offset, 0}},
                record.stack ? record.stack->tag : nullptr};
    }
    const std::vector<emm_frame> &frames = record.stack->frames;
    const bool has_python = std::any_of(frames.begin(), frames.end(),
                                        [](const emm_frame &each) { return each.function; });
    const auto is_own = [](const emm_frame &each) {
        return each.function && !observe::is_installed_python(each.module);
    };
    const auto own = std::find_if(frames.begin(), frames.end(), is_own);
    CallPath path = {{}, record.stack->tag};
    for (auto each = own == frames.end() ? frames.begin() : own; each != frames.end(); ++each) {
        if (path.steps.size() < most_steps && has_python == (each->function != nullptr)) {
            path.steps.push_back({each->module, each->function, each->offset, each->line});
        }
    }
    return path;
}

std::string name_of(const CallPath::Step &step) {
    return step.function ? fmt::format("{}:{} ({})", step.module, step.line, step.function)
                         : native_name(step.module ? step.module : "", step.offset);
}

// "/usr/bin/train+0x1234 (alloc+0x42) < step(int) < main": outer calls appear by name alone, so
// that several calls within one function are one holder.
std::string name_of(const CallPath &path) {
    std::string text = name_of(path.steps.front());
    for (size_t i = 1; i < path.steps.size(); ++i) {
        const CallPath::Step &step = path.steps[i];
        const std::string symbol =
            step.function || !step.module ? "" : observe::symbol_at(step.module, step.offset);
        text += " < " + (symbol.empty() ? name_of(step) : symbol.substr(0, symbol.rfind("+0x")));
    }
    return path.tag ? text + " [" + path.tag->path + "]" : text;
}

// Sums by holder, before the holder gets a name.
template <class Holder> using Sums = std::map<Holder, MemoryHolder>;

template <class Holder>
void add_to(Sums<Holder> &sums, Holder holder, const TrackedAllocation &record, uint32_t sample) {
    MemoryHolder &sum = sums[std::move(holder)];
    sum.bytes += record.size * sample;
    sum.count += sample;
}

template <class Holder, class Name>
std::vector<MemoryHolder> largest_of(const Sums<Holder> &sums, Name name) {
    std::vector<std::pair<Holder, MemoryHolder>> sorted(sums.begin(), sums.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto &one, const auto &other) {
        return one.second.bytes > other.second.bytes;
    });
    std::vector<MemoryHolder> named;
    std::set<std::string> names; // fewer than holders: holders of one name become one
    for (auto &[holder, sum] : sorted) {
        // The remaining holders become one sum, so they need no names.
        sum.name = names.size() < most_holders ? name(holder) : fmt::format("{}", named.size());
        names.insert(sum.name);
        named.push_back(sum);
    }
    return observe::largest_holders(std::move(named), most_holders);
}

bool is_on_device(const TrackedAllocation &record) noexcept {
    return record.type == static_cast<uint32_t>(observe::EventType::alloc);
}

bool is_host_memory(const TrackedAllocation &record) noexcept {
    return record.type == static_cast<uint32_t>(observe::EventType::host_alloc) ||
           record.type == static_cast<uint32_t>(observe::EventType::pin);
}

std::vector<MemoryHolder> taken_from_driver(int32_t device) {
    Sums<uint32_t> libraries;
    const std::map<uint64_t, uint64_t> pools = driver::account().tracked_pools(device);
    for (const DriverMemory &memory : tracked_driver_memory(device)) {
        const auto pool = pools.find(memory.id);
        const uint64_t bytes = pool == pools.end() ? memory.size : pool->second;
        if (bytes != 0) {
            MemoryHolder &sum = libraries[memory.module];
            sum.bytes += bytes;
            sum.count++;
        }
    }
    return largest_of(libraries, [](uint32_t module) { return observe::modules().path(module); });
}

// Sums by number of module, and by call stack.
struct TrackedSums {
    Sums<uint32_t> libraries;
    Sums<CallPath> callers;

    void add(const TrackedAllocation &record) {
        const uint32_t sample = open_tracking().sample;
        add_to(libraries, record.module, record, sample);
        add_to(callers, path_of(record), record, sample);
    }
    MemoryReport::Tracked named() const {
        MemoryReport::Tracked tracked;
        tracked.sample = open_tracking().sample;
        tracked.lost = lost_records();
        tracked.libraries =
            largest_of(libraries, [](uint32_t module) { return observe::modules().path(module); });
        tracked.callers = largest_of(callers, [](const CallPath &path) { return name_of(path); });
        return tracked;
    }
};

template <class Predicate> MemoryReport::Tracked tracked_if(Predicate is_wanted) {
    TrackedSums sums;
    for (const TrackedAllocation &record : tracked_allocations(nullptr)) {
        if (is_wanted(record)) {
            sums.add(record);
        }
    }
    return sums.named();
}

// Memory that was live when contexts were reset or ended, by event. Sums by caller alone, because a
// program may reset its contexts again and again.
struct Dropped {
    std::mutex mutex;
    std::map<std::string, TrackedSums> by_moment;
};
constexpr auto &all_dropped = observe::immortal<Dropped>;

std::optional<MemoryReport::Plugin> plugin_figures(int32_t device) {
    std::optional<MemoryReport::Plugin> sum;
    for (emm_context *context = first_context(); context; context = context->next) {
        const OwnerGuard guard(context->manager_lock, std::try_to_lock);
        auto stats = observe::sized<emm_stats>();
        if (context->device != device || !guard.owns() || !is_served(*context) ||
            get_stats(*context, &stats) < EMM_OK) {
            continue;
        }
        sum = sum ? sum : MemoryReport::Plugin();
        sum->live_bytes += stats.live_bytes;
        sum->live_count += stats.live_count;
        sum->cached_bytes += stats.cached_bytes;
        sum->pending_bytes += stats.pending_bytes;
        sum->reserved_bytes += stats.reserved_bytes;
        sum->spilled_bytes += stats.spilled_bytes;
        sum->host_live_bytes += stats.host_live_bytes;
        sum->largest_free_block = std::max(sum->largest_free_block, stats.largest_free_block);
    }
    return sum;
}

std::optional<MemoryReport::Pool> pool_figures(emm_context &context) {
    const OwnerGuard guard(context.manager_lock, std::try_to_lock);
    auto stats = observe::sized<emm_stats>();
    size_t free = 0, total = 0;
    if (!guard.owns() || !is_served(context) || get_memory_info(context, &free, &total) < EMM_OK ||
        get_stats(context, &stats) < EMM_OK) {
        return std::nullopt;
    }
    const uint64_t held =
        stats.reserved_bytes - std::min(stats.reserved_bytes, stats.spilled_bytes);
    return MemoryReport::Pool{context.pool, free, total, held};
}

bool is_only_pool(const emm_context &context) noexcept {
    for (const emm_context *other = first_context(); other; other = other->next) {
        if (other != &context && other->device == context.device && is_served(*other)) {
            return false;
        }
    }
    return true;
}

// True at most once in each interval.
bool is_due() noexcept {
    static std::atomic<int64_t> next{INT64_MIN};
    const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
    int64_t due = next.load(std::memory_order_relaxed);
    const int64_t later = now + std::chrono::nanoseconds(between_reports).count();
    return now >= due && next.compare_exchange_strong(due, later, std::memory_order_relaxed);
}

std::string caller_name(const void *caller) {
    if (!caller || !is_tracking()) {
        return "";
    }
    const observe::CodePlace place = observe::find_outer_caller(caller).place;
    TrackedAllocation asked;
    asked.stack = stack_of(caller);
    const CallPath path = path_of(asked);
    if (path.steps.front().function) {
        return name_of(path);
    }
    return native_name(observe::modules().path(place.module), place.offset) +
           observe::tag_text(asked.stack);
}

std::string command_line() {
    std::string text = observe::text_of_file("/proc/self/cmdline");
    std::replace(text.begin(), text.end(), '\0', ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
}

std::string time_now() {
    const time_t now = time(nullptr);
    tm parts = {};
    char text[64];
    gmtime_r(&now, &parts);
    return {text, strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

// EMM_OOM_REPORT=page:FOLDER: FOLDER/emm-oom-PROCESS-NUMBER.html.
void write_page(const MemoryReport &found) {
    static const std::string folder(observe::page_folder(observe::setting("EMM_OOM_REPORT")));
    static std::atomic<uint32_t> written{0};
    if (folder.empty()) {
        return;
    }
    const std::string path = fmt::format("{}/emm-oom-{}-{}.html", folder, getpid(), ++written);
    const observe::PageSubject subject = {observe::program_name(), command_line(),
                                          static_cast<uint32_t>(getpid()), time_now()};
    std::string reason;
    const observe::File file = observe::open_own(path, observe::Make::yes, reason);
    if (file && (ftruncate(file.number(), 0) != 0 ||
                 !observe::write_all(file.number(), observe::report_page(found, subject)))) {
        reason = fmt::format("cannot write {}: {}", path, std::strerror(errno));
    }
    if (reason.empty()) {
        observe::log(EMM_LOG_ERROR, "  this report as a page: {}", path);
    } else {
        observe::log(EMM_LOG_ERROR, "EMM_OOM_REPORT: {}", reason);
    }
}

std::string report(emm_context &context, uint64_t bytes, bool of_host,
                   const void *caller) noexcept {
    const Uncancelled uncancelled;
    try {
        static const bool is_wanted =
            is_report_wanted(observe::setting("EMM_OOM_REPORT"), is_tracking());
        if (!is_wanted || observe::is_forked_child() || !is_due()) {
            return "";
        }
        const MemoryReport found =
            memory_report(context, MemoryReport::Request{bytes, of_host, caller_name(caller)});
        write_report(observe::report_lines(found));
        write_page(found);
        return observe::report_json(found);
    } catch (const std::exception &error) {
        observe::log(EMM_LOG_WARN, "no report of who holds the memory: {}", error.what());
        return "";
    }
}

[[gnu::constructor]] void have_exhaustion_reported() {
    report_exhaustion = &report;
}

} // namespace

bool is_report_wanted(std::string_view setting, bool is_tracking) noexcept {
    return setting == "on" || !observe::page_folder(setting).empty() ||
           (setting != "off" && is_tracking);
}

MemoryReport memory_report(emm_context &context, std::optional<MemoryReport::Request> request) {
    const Uncancelled uncancelled; // files are read
    const observe::Preserved said;
    const bool of_host = request && request->of_host;
    MemoryReport report;
    report.request = std::move(request);
    report.device = context.device;
    report.plugin = context.selection ? context.selection->plugin->name : "";
    report.spec = context.selection ? context.selection->spec : "";
    report.of_plugin = plugin_figures(context.device);
    report.of_driver = driver_figures(context);
    report.of_pool = pool_figures(context);
    const driver::Account::Figures figures = driver::account().figures(context.device);
    if (figures.bound != 0) {
        report.bound = driver::limit_text(figures);
        report.of_bound = {figures.bound - std::min(figures.bound, figures.used), figures.bound};
        report.of_device = device_figures(context);
    }
    report.own_process = static_cast<uint32_t>(getpid());
    std::vector<observe::DeviceProcess> processes;
    if (driver::device_processes(context.uuid, processes, report.no_processes)) {
        report.processes = std::move(processes);
    }
    if (is_tracking()) {
        const bool of_pool = observe::is_pool_full(report) && !is_only_pool(context);
        report.tracked = tracked_if([&](const TrackedAllocation &record) {
            return of_host   ? is_host_memory(record)
                   : of_pool ? is_on_device(record) && record.context == &context
                             : is_on_device(record) && record.context->device == context.device;
        });
        report.tracked->of_pool = of_pool;
        report.tracked->of_driver = taken_from_driver(context.device);
    }
    return report;
}

std::vector<std::string> memory_report_lines() {
    std::vector<std::string> lines;
    std::set<int32_t> told;
    for (emm_context *context = first_context(); context; context = context->next) {
        if (is_served(*context) && told.insert(context->device).second) {
            const std::vector<std::string> more =
                observe::report_lines(memory_report(*context, std::nullopt));
            lines.insert(lines.end(), more.begin(), more.end());
        }
    }
    return lines;
}

void write_report(const std::vector<std::string> &lines) noexcept {
    for (const std::string &line : lines) {
        observe::log(EMM_LOG_ERROR, line);
    }
}

void keep_dropped(const emm_context &context, bool by_reset) {
    const std::vector<TrackedAllocation> records = tracked_allocations(&context);
    if (records.empty()) {
        return;
    }
    const std::string moment = fmt::format("when {} {}", context, by_reset ? "was reset" : "ended");
    Dropped &dropped = all_dropped();
    const std::lock_guard lock(dropped.mutex);
    TrackedSums &sums = dropped.by_moment[moment];
    for (const TrackedAllocation &record : records) {
        sums.add(record);
    }
}

std::vector<std::string> leak_report_lines() {
    if (!is_tracking() || observe::is_forked_child()) {
        return {};
    }
    std::vector<std::string> lines;
    const auto tell = [&](const MemoryReport::Tracked &tracked, std::string_view moment) {
        const std::vector<std::string> more = observe::leak_lines(tracked, moment);
        lines.insert(lines.end(), more.begin(), more.end());
    };
    {
        Dropped &dropped = all_dropped();
        const std::lock_guard lock(dropped.mutex);
        for (const auto &[moment, sums] : dropped.by_moment) {
            tell(sums.named(), moment);
        }
    }
    tell(tracked_if([](const TrackedAllocation &) { return true; }), "at the end");
    std::set<int32_t> devices;
    for (const emm_context *context = first_context(); context; context = context->next) {
        devices.insert(context->device);
    }
    for (const int32_t device : devices) {
        const driver::Account::Figures figures = driver::account().figures(device);
        const std::vector<std::string> more = observe::driver_leak_lines(
            device, driver::kinds_text(figures.rows[size_t(driver::Holder::program)], "", false),
            taken_from_driver(device));
        lines.insert(lines.end(), more.begin(), more.end());
    }
    return lines;
}

} // namespace emm::core
