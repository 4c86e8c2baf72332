#include "observe/memory_report.h"

#include "observe/text.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace emm::observe {
namespace {

constexpr size_t most_processes = 10;
constexpr size_t longest_name = 300; // bytes, in a line
constexpr const char *from_sample = "estimated from one allocation in";

// A name that is safe on a terminal: the end of a path, or the innermost calls, which come first.
std::string shown(const std::string &name) {
    return name.empty() ? "(unknown)" : one_line(name, longest_name);
}

uint64_t bytes_of_all(const std::vector<MemoryHolder> &holders) {
    uint64_t sum = 0;
    for (const MemoryHolder &holder : holders) {
        sum += holder.bytes;
    }
    return sum;
}

// Bytes that the program is known to have taken from the driver itself.
uint64_t of_driver_itself(const MemoryReport &report) {
    return report.tracked ? bytes_of_all(report.tracked->of_driver) : 0;
}

std::string holder_line(const MemoryHolder &holder, uint64_t all) {
    return fmt::format("    {:>10}  {:>3.0f} %  {:>9} {:<11}  {}", bytes_text(holder.bytes),
                       all == 0 ? 0 : 100.0 * double(holder.bytes) / double(all), holder.count,
                       holder.count == 1 ? "allocation" : "allocations", shown(holder.name));
}

void add_holders(std::vector<std::string> &lines, const std::string &title,
                 const std::vector<MemoryHolder> &holders) {
    if (holders.empty()) {
        return;
    }
    lines.push_back(title);
    for (const MemoryHolder &holder : holders) {
        lines.push_back(holder_line(holder, bytes_of_all(holders)));
    }
}

std::string in_pool(const MemoryReport &report) {
    return report.of_pool->name.empty() ? " in the default pool"
                                        : " in pool " + shown(report.of_pool->name);
}

std::string in_named_pool(const MemoryReport &report) {
    return report.of_pool && !report.of_pool->name.empty() ? in_pool(report) : "";
}

std::string first_line(const MemoryReport &report) {
    if (!report.request) {
        return fmt::format("memory of device {}:", report.device);
    }
    const MemoryReport::Request &request = *report.request;
    return fmt::format("out of {} memory on device {}{}: {} ({} bytes) asked for by {}",
                       request.of_host ? "host" : "device", report.device, in_named_pool(report),
                       bytes_text(request.bytes), request.bytes,
                       request.caller.empty() ? "a caller that EMM_TRACK=module would name"
                                              : shown(request.caller));
}

// Whether the plugin would have more without its limit: the driver's free memory and its own cache.
bool is_held_by_limit(const MemoryReport &report) {
    const uint64_t cached = report.of_plugin ? report.of_plugin->cached_bytes : 0;
    return is_limited(report) && report.of_pool->free < report.of_driver->free + cached;
}

// "  cached      1.50 GiB kept by ..."
template <class... Values>
std::string figure(const char *name, uint64_t bytes, fmt::format_string<Values...> rest,
                   Values &&...values) {
    return fmt::format("  {:<10} {:>10} {}", name, bytes_text(bytes),
                       fmt::format(rest, std::forward<Values>(values)...));
}

std::string limit_line(const MemoryReport &report) {
    const MemoryReport::Pool &pool = *report.of_pool;
    return figure(
        "limit", pool.total, "by the plugin{}, {}", in_named_pool(report),
        pool.held > pool.total
            ? fmt::format("exceeded by {} since it was lowered", bytes_text(pool.held - pool.total))
        : is_held_by_limit(report) ? fmt::format("of which {} are free", bytes_text(pool.free))
                                   : "which is not reached");
}

std::string largest_line(const MemoryReport::Plugin &plugin) {
    return is_largest_told(plugin)
               ? figure("largest", plugin.largest_free_block, "free in one piece of what is cached")
               : "  largest             - free in one piece: none, or not told by the plugin";
}

void add_figures(std::vector<std::string> &lines, const MemoryReport &report) {
    if (const auto &plugin = report.of_plugin) {
        lines.insert(
            lines.end(),
            {figure("live", plugin->live_bytes, "in {}", counted(plugin->live_count, "allocation")),
             figure("cached", plugin->cached_bytes, "kept by plugin {} for later requests",
                    shown(report.plugin)),
             figure("pending", plugin->pending_bytes, "freed, and waiting for the device"),
             figure("reserved", plugin->reserved_bytes, "taken from the driver by the plugin"),
             largest_line(*plugin), figure("pinned", plugin->host_live_bytes, "of host memory")});
        if (plugin->spilled_bytes > 0) {
            lines.push_back(figure("spilled", plugin->spilled_bytes, "reserved, on the host"));
        }
    } else {
        lines.push_back("  plugin     its figures are not told");
    }
    if (is_limited(report)) {
        lines.push_back(limit_line(report));
    }
    if (report.of_driver) {
        lines.push_back(figure("free", report.of_driver->free, "of {}, {}",
                               bytes_text(report.of_driver->total),
                               report.bound.empty() ? "says the driver" : "within the bound"));
    }
    if (!report.bound.empty()) {
        lines.push_back("  bound      " + report.bound);
    }
    if (const std::string_view full = full_of(report); !full.empty()) {
        const bool is_bound = full == "bound";
        const MemoryReport::Driver &one = is_bound ? *report.of_bound : *report.of_device,
                                   &other = is_bound ? *report.of_device : *report.of_bound;
        lines.push_back(
            fmt::format("  full       the {}: {} of it are left for {}, and {} of the {}", full,
                        bytes_text(one.free), bytes_text(report.request->bytes),
                        bytes_text(other.free), is_bound ? "device" : "bound"));
    }
}

void add_processes(std::vector<std::string> &lines, const MemoryReport &report) {
    if (!report.processes) {
        lines.push_back("  other processes: not told, " + shown(report.no_processes));
        return;
    }
    size_t told = 0;
    for (const DeviceProcess &process : *report.processes) {
        if (process.id != report.own_process && told++ < most_processes) {
            lines.push_back(
                figure("process", process.bytes, "{} {}", process.id, shown(process.name)));
        }
    }
    if (told > most_processes) {
        lines.push_back(fmt::format("  and {} more processes", told - most_processes));
    }
}

void add_remainder(std::vector<std::string> &lines, const MemoryReport &report) {
    if (const auto remainder = remainder_of(report)) {
        lines.push_back(figure(
            "remainder", remainder->bytes, "{}",
            remainder->includes_others ? "contexts, modules, local memory, and other processes"
            : report.tracked           ? "contexts, modules, local memory"
                                       : "contexts, modules, local memory, and what the program "
                                         "took from the driver itself"));
    }
}

void add_tracked(std::vector<std::string> &lines, const MemoryReport &report) {
    if (!report.tracked) {
        return;
    }
    if (report.tracked->sample != 1) {
        lines.push_back(fmt::format("  {} {}:", from_sample, report.tracked->sample));
    }
    const std::string where = report.tracked->of_pool ? in_pool(report) : "";
    add_holders(lines, "  live" + where + " by library:", report.tracked->libraries);
    add_holders(lines, "  live" + where + " by caller:", report.tracked->callers);
    add_holders(lines, "  taken from the driver itself, by library:", report.tracked->of_driver);
    if (const uint64_t lost = report.tracked->lost) {
        lines.push_back(fmt::format("  no records of {}: there was no memory for them",
                                    counted(lost, "allocation")));
    }
}

// --- hints -------------------------------------------------------------------------------------

// The plugin that would put pieces together; "" if the present one does.
std::string piecing_plugin(const MemoryReport &report) {
    if (report.plugin != "pool") {
        return "a plugin that maps pages, as pool does unless growth=segment, puts pieces together";
    }
    for (const char *const option : {"ipc=dedicated", "growth=segment"}) {
        if (report.spec.find(option) != std::string::npos) {
            return fmt::format("pool without {} maps pages, and puts pieces together", option);
        }
    }
    return "";
}

// Memory is in pieces if the cache and the driver's free memory suffice together, but not alone.
void hint_at_pieces(const MemoryReport &report, uint64_t free, std::vector<std::string> &hints) {
    const MemoryReport::Plugin &plugin = *report.of_plugin;
    const uint64_t asked = report.request->bytes;
    const std::string other = piecing_plugin(report);
    if (other.empty() || free >= asked || plugin.cached_bytes + free < asked ||
        plugin.largest_free_block >= asked) {
        return;
    }
    const std::string largest = plugin.largest_free_block == 0
                                    ? ""
                                    : fmt::format(" (the largest that is cached has {})",
                                                  bytes_text(plugin.largest_free_block));
    hints.push_back(fmt::format("{} are cached or free, but not in one piece{}: {}",
                                bytes_text(plugin.cached_bytes + free), largest, other));
}

void hint_at_plugin(const MemoryReport &report, std::vector<std::string> &hints) {
    if (!report.request || !report.of_plugin || report.request->of_host) {
        return;
    }
    const MemoryReport::Plugin &plugin = *report.of_plugin;
    const uint64_t free = report.of_driver ? report.of_driver->free : 0;
    if (is_pool_full(report)) {
        const std::string more =
            free == 0
                ? ""
                : fmt::format("; a larger one could have {} more of the driver", bytes_text(free));
        hints.push_back(fmt::format("the plugin's limit{} is {}, of which {} are free{}",
                                    in_named_pool(report), bytes_text(report.of_pool->total),
                                    bytes_text(report.of_pool->free), more));
        return;
    }
    if (plugin.pending_bytes >= report.request->bytes) {
        hints.push_back(fmt::format("{} are freed and still in use by the device or held back by a "
                                    "deferred section: synchronize before the allocation",
                                    bytes_text(plugin.pending_bytes)));
    } else {
        hint_at_pieces(report, free, hints);
    }
}

// Hints about memory that no plugin can give to other users.
void hint_at_driver_memory(const MemoryReport &report, std::vector<std::string> &hints) {
    for (const MemoryHolder &holder : report.tracked->of_driver) {
        if (holder.name.find("xla_cuda_plugin") != std::string::npos) {
            hints.push_back(fmt::format("JAX holds {} past the plugin: "
                                        "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async has it ask there",
                                        bytes_text(holder.bytes)));
        }
        if (holder.name.find("libc10_cuda") != std::string::npos) {
            hints.push_back(fmt::format("PyTorch's expandable segments hold {} past the plugin: "
                                        "without expandable_segments in PYTORCH_CUDA_ALLOC_CONF it "
                                        "asks there",
                                        bytes_text(holder.bytes)));
        }
    }
}

void hint_at_holders(const MemoryReport &report, std::vector<std::string> &hints) {
    if (!report.tracked) {
        hints.push_back("EMM_TRACK=module in the environment, or emm run --track module, tells "
                        "which library holds how much; EMM_TRACK=stack which call");
        return;
    }
    hint_at_driver_memory(report, hints);
    const std::vector<MemoryHolder> &libraries = report.tracked->libraries;
    if (libraries.empty()) {
        return;
    }
    const MemoryHolder &largest = libraries.front();
    if (largest.bytes * 2 < bytes_of_all(libraries)) {
        return;
    }
    const std::vector<MemoryHolder> &callers = report.tracked->callers;
    const bool has_lines = !callers.empty() && callers.front().name.rfind(largest.name, 0) != 0;
    hints.push_back(fmt::format(
        "{} holds {} of what is live{}{}", shown(largest.name), bytes_text(largest.bytes),
        report.tracked->of_pool ? in_pool(report) : "",
        has_lines ? fmt::format("; the caller with the most of it, {}, is {}",
                                bytes_text(callers.front().bytes), shown(callers.front().name))
                  : ""));
    if (largest.name.find("libc10_cuda") != std::string::npos) {
        hints.push_back("PyTorch's cache is part of that: torch.cuda.empty_cache() gives it back, "
                        "and emm run --release torch does so when memory runs out");
    }
    if (largest.name.find("cupy") != std::string::npos) {
        hints.push_back("CuPy's pool is part of that: free_all_blocks() gives it back, and emm run "
                        "--release cupy does so when memory runs out");
    }
}

void hint_at_others(const MemoryReport &report, std::vector<std::string> &hints) {
    uint64_t others = 0;
    for (const DeviceProcess &process : report.processes.value_or(std::vector<DeviceProcess>())) {
        others += process.id == report.own_process ? 0 : process.bytes;
    }
    if (others != 0 && report.request && others >= report.request->bytes) {
        hints.push_back(fmt::format("other processes hold {} of the device", bytes_text(others)));
    }
    const auto remainder = remainder_of(report);
    if (remainder && !remainder->includes_others && report.of_driver &&
        remainder->bytes > report.of_driver->total / 10) {
        hints.push_back(fmt::format("{} are in contexts, modules and local memory: "
                                    "CUDA_MODULE_LOADING=LAZY and fewer contexts take less",
                                    bytes_text(remainder->bytes)));
    }
}

} // namespace

std::optional<Remainder> remainder_of(const MemoryReport &report) {
    if (!report.of_plugin) {
        return std::nullopt;
    }
    const uint64_t reserved = report.of_plugin->of_device() + of_driver_itself(report);
    for (const DeviceProcess &process : report.processes.value_or(std::vector<DeviceProcess>())) {
        if (process.id == report.own_process) {
            return Remainder{process.bytes - std::min(process.bytes, reserved), false};
        }
    }
    const auto &device = report.of_device ? report.of_device : report.of_driver;
    if (!device) {
        return std::nullopt;
    }
    const uint64_t used = device->total - std::min(device->total, device->free);
    return Remainder{used - std::min(used, reserved), true};
}

bool is_limited(const MemoryReport &report) {
    return report.of_pool && report.of_driver && report.of_pool->total < report.of_driver->total;
}

bool is_largest_told(const MemoryReport::Plugin &plugin) {
    return plugin.largest_free_block != 0 || plugin.cached_bytes == 0;
}

bool is_pool_full(const MemoryReport &report) {
    return report.request && !report.request->of_host && is_held_by_limit(report) &&
           report.of_pool->free < report.request->bytes;
}

std::string_view full_of(const MemoryReport &report) {
    if (!report.request || report.request->of_host || !report.of_bound || !report.of_device) {
        return "";
    }
    const uint64_t asked = report.request->bytes;
    return report.of_bound->free < asked ? "bound" : report.of_device->free < asked ? "device" : "";
}

std::vector<std::string> hints_for(const MemoryReport &report) {
    std::vector<std::string> hints;
    if (report.request && !report.request->of_host && report.of_driver &&
        report.request->bytes > report.of_driver->total) {
        hints.push_back(fmt::format("{} {} in all: no plugin can give {}",
                                    report.bound.empty() ? "the device has" : "the bound is",
                                    bytes_text(report.of_driver->total),
                                    bytes_text(report.request->bytes)));
        return hints;
    }
    hint_at_plugin(report, hints);
    hint_at_holders(report, hints);
    hint_at_others(report, hints);
    return hints;
}

std::vector<MemoryHolder> largest_holders(std::vector<MemoryHolder> all, size_t most) {
    std::map<std::string, MemoryHolder> by_name;
    for (MemoryHolder &holder : all) {
        MemoryHolder &sum = by_name[holder.name];
        sum.bytes += holder.bytes;
        sum.count += holder.count;
    }
    all.clear();
    for (auto &[name, sum] : by_name) {
        sum.name = name;
        all.push_back(sum);
    }
    std::stable_sort(
        all.begin(), all.end(),
        [](const MemoryHolder &one, const MemoryHolder &other) { return one.bytes > other.bytes; });
    if (all.size() <= most) {
        return all;
    }
    MemoryHolder rest = {fmt::format("{} others", all.size() - most), 0, 0};
    for (size_t i = most; i < all.size(); i++) {
        rest.bytes += all[i].bytes;
        rest.count += all[i].count;
    }
    all.resize(most);
    all.push_back(rest);
    return all;
}

std::vector<std::string> report_lines(const MemoryReport &report) {
    std::vector<std::string> lines = {first_line(report)};
    add_figures(lines, report);
    add_processes(lines, report);
    add_remainder(lines, report);
    add_tracked(lines, report);
    for (const std::string &hint : hints_for(report)) {
        lines.push_back("  hint: " + hint);
    }
    return lines;
}

std::vector<std::string> leak_lines(const MemoryReport::Tracked &tracked, std::string_view moment) {
    std::vector<std::string> lines;
    const std::string title =
        fmt::format("{} still allocated {}{}:", bytes_text(bytes_of_all(tracked.callers)), moment,
                    tracked.sample == 1 ? "" : fmt::format(", {} {}", from_sample, tracked.sample));
    add_holders(lines, title, tracked.callers);
    return lines;
}

std::vector<std::string> driver_leak_lines(int32_t device, const std::string &kinds,
                                           const std::vector<MemoryHolder> &libraries) {
    if (kinds.empty()) {
        return {};
    }
    std::vector<std::string> lines = {
        fmt::format("still taken from the driver itself at the end, device {}: {}", device, kinds)};
    add_holders(lines, "  by library:", libraries);
    return lines;
}

} // namespace emm::observe
