#include "observe/memory_page.h"

#include "observe/text.h"

#include <fmt/format.h>

namespace emm::observe {
namespace {

// The page of `emm report` shows a recording, with scripts. The page of a failure without a
// recording is a few tables, which need no script.
constexpr std::string_view head = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Out of memory</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; line-height: 1.3; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h1, td, dd, li { overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.bar { width: 20%; } meter { width: 100%; }
@media (max-width: 40rem) { td.bar { display: none; } }
pre { overflow-x: auto; font-size: .85rem; }
</style>
</head>
<body>
)";

// Replaces the characters that have a meaning in HTML.
std::string in_html(std::string_view name) {
    std::string text;
    for (const char letter : one_line(name)) {
        switch (letter) {
        case '<':
            text += "&lt;";
            break;
        case '>':
            text += "&gt;";
            break;
        case '&':
            text += "&amp;";
            break;
        case '"':
            text += "&quot;";
            break;
        default:
            text += letter;
        }
    }
    return text;
}

// A part of `all`, drawn as one bar in its row.
struct Part {
    std::string name;
    uint64_t bytes;
    std::string more;
};

std::string row(const Part &part, uint64_t all) {
    const double share = all == 0 ? 0 : 100.0 * double(part.bytes) / double(all);
    return fmt::format("<tr><td class=\"number\">{}</td><td class=\"number\">{:.0f} %</td>"
                       "<td class=\"bar\"><meter max=\"100\" value=\"{:.1f}\"></meter></td>"
                       "<td>{}<br><small>{}</small></td></tr>\n",
                       bytes_text(part.bytes), share, share,
                       part.name.empty() ? "(unknown)" : in_html(part.name), in_html(part.more));
}

// Parts of 0 bytes are left out. `all` 0: the sum of the parts.
std::string table(std::string_view title, const std::vector<Part> &parts, uint64_t all = 0) {
    std::string rows;
    uint64_t sum = 0;
    for (const Part &part : parts) {
        sum += part.bytes;
    }
    for (const Part &part : parts) {
        rows += part.bytes == 0 ? "" : row(part, all == 0 ? sum : all);
    }
    return rows.empty() ? "" : fmt::format("<h2>{}</h2>\n<table>\n{}</table>\n", title, rows);
}

std::string holders(std::string_view title, const std::vector<MemoryHolder> &all) {
    std::vector<Part> parts;
    for (const MemoryHolder &each : all) {
        parts.push_back({each.name, each.bytes, counted(each.count, "allocation")});
    }
    return table(title, parts);
}

// The known memory of this program on the device.
std::vector<Part> own_parts(const MemoryReport &report) {
    std::vector<Part> parts;
    if (const auto &plugin = report.of_plugin) {
        const uint64_t live =
            plugin->live_bytes - std::min(plugin->live_bytes, plugin->spilled_bytes);
        const uint64_t rest =
            plugin->of_device() - std::min(plugin->of_device(), live + plugin->cached_bytes);
        parts.push_back(
            {"live", live, counted(plugin->live_count, "allocation") + " of this program"});
        parts.push_back({"cached", plugin->cached_bytes,
                         "kept by plugin " + report.plugin + " for later requests"});
        parts.push_back(
            {"rounding, and freed memory that waits", rest, "also reserved by the plugin"});
    }
    for (const MemoryHolder &each :
         report.tracked ? report.tracked->of_driver : std::vector<MemoryHolder>()) {
        parts.push_back({each.name, each.bytes, "taken from the driver itself"});
    }
    return parts;
}

// Contexts, modules and local memory do not count against the bound.
std::string bound_table(const MemoryReport &report) {
    const MemoryReport::Driver &bound = *report.of_bound;
    std::vector<Part> parts = own_parts(report);
    uint64_t rest = bound.total - std::min(bound.total, bound.free);
    for (const Part &part : parts) {
        rest -= std::min(rest, part.bytes);
    }
    parts.push_back({"other", rest,
                     report.tracked ? "programs that share the bound"
                                    : "taken from the driver itself, or by programs that share the "
                                      "bound"});
    parts.push_back({"free", bound.free, fmt::format("of {}", bytes_text(bound.total))});
    return table("Where the bound's memory is", parts, bound.total);
}

// If NVML tells, the table includes other processes.
std::string device_table(const MemoryReport &report) {
    const auto &device = report.of_driver;
    std::vector<Part> parts = own_parts(report);
    if (const auto remainder = remainder_of(report)) {
        parts.push_back({"remainder", remainder->bytes,
                         remainder->includes_others
                             ? "contexts, modules, local memory, and other processes"
                             : "contexts, modules, local memory"});
    }
    for (const DeviceProcess &each : report.processes.value_or(std::vector<DeviceProcess>())) {
        if (each.id != report.own_process) {
            parts.push_back({each.name, each.bytes, fmt::format("another process, {}", each.id)});
        }
    }
    if (device) {
        parts.push_back({"free", device->free, fmt::format("of {}", bytes_text(device->total))});
    }
    return table("Where the device's memory is", parts, device ? device->total : 0);
}

std::string facts(const MemoryReport &report, const PageSubject &subject) {
    std::string list;
    for (const auto &[name, value] :
         {std::pair<const char *, std::string>(
              "Program", fmt::format("{} (process {})",
                                     subject.command.empty() ? subject.program : subject.command,
                                     subject.process)),
          {"Time", subject.time},
          {"Plugin", report.spec.empty() ? report.plugin : report.spec},
          {"Bound", report.bound},
          {"Full", std::string(full_of(report))},
          {"Device", report.of_device
                         ? fmt::format("{} of {} free", bytes_text(report.of_device->free),
                                       bytes_text(report.of_device->total))
                         : ""}}) {
        list += value.empty()
                    ? ""
                    : fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", name, in_html(value));
    }
    return "<table>\n" + list + "</table>\n";
}

} // namespace

std::string report_page(const MemoryReport &report, const PageSubject &subject) {
    const std::vector<std::string> lines = report_lines(report);
    std::string page(head);
    page += fmt::format("<h1>{}</h1>\n", in_html(lines.front()));
    page += facts(report, subject);
    std::string hints;
    for (const std::string &hint : hints_for(report)) {
        hints += fmt::format("<li>{}</li>\n", in_html(hint));
    }
    page += hints.empty() ? "" : "<h2>What could be done</h2>\n<ul>\n" + hints + "</ul>\n";
    page += report.of_bound ? bound_table(report) : device_table(report);
    if (const auto &tracked = report.tracked) {
        page += holders("What is live, by caller", tracked->callers);
        page += holders("What is live, by library", tracked->libraries);
    }
    page += "<h2>The report as the log has it</h2>\n<pre>";
    for (const std::string &line : lines) {
        page += in_html(line) + "\n";
    }
    return page + "</pre>\n</body>\n</html>\n";
}

} // namespace emm::observe
