#include "bench/report.h"

#include "driver.h"
#include "problem.h"
#include "table.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

std::string size_text(const Json &result) {
    const auto size = result.at("size").get<uint64_t>();
    return size == 0 ? "-" : in_bytes(size);
}

std::string error_text(const Json &result) {
    const std::string name = result.at("plugin").get<std::string>();
    const std::string where =
        result.contains("case") ? fmt::format("{}, {}", name, result.at("case").get<std::string>())
                                : name;
    return fmt::format("\n{}: {}\n", where, to_text(problem_from_json(result)));
}

using Times = std::map<std::string, double>; // ns for a pair, by case

Times times_of_one_thread(const Json &report) {
    Times ns;
    for (const Json &result : report.at("results")) {
        if (!result.contains("error") && result.at("threads") == 1) {
            ns[result.at("case").get<std::string>()] = result.at("ns_per_pair").get<double>();
        }
    }
    return ns;
}

// vtable, clock and logged are measured in turns; two events make a pair.
std::string recording_text(Times ns) {
    if (ns.count("logged") == 0 || ns.count("clock") == 0 || ns.count("vtable") == 0) {
        return "";
    }
    return fmt::format(
        "\nan event recorded by EMM_EVENT_LOG costs {:.1f} ns, and {:.1f} ns for two "
        "readings of the clock\n",
        (ns["logged"] - ns["vtable"] - ns["clock"]) / 2, ns["clock"] / 2);
}

// vtable is measured in turns with both.
std::string tracking_text(Times ns) {
    std::string text;
    for (const auto &[name, depth] : {std::pair("tracked", "module"), {"tracked_stack", "stack"}}) {
        if (ns.count(name) != 0 && ns.count("vtable") != 0) {
            text += fmt::format("\nan allocation tracked by EMM_TRACK={} costs {:.1f} ns, its free "
                                "included\n",
                                depth, ns[name] - ns["vtable"]);
        }
    }
    return text;
}

} // namespace

std::string bench_text(const Json &report) {
    Table table(
        {"case", "plugin", "threads", "size", "ns/pair", "million pairs/s", "driver calls/pair"},
        4);
    std::string errors;
    for (const Json &result : report.at("results")) {
        if (result.contains("error")) {
            errors += error_text(result);
            continue;
        }
        table.add({result.at("case").get<std::string>(), result.at("plugin").get<std::string>(),
                   std::to_string(result.at("threads").get<uint32_t>()), size_text(result),
                   in_tenths(result.at("ns_per_pair").get<double>()),
                   fmt::format("{:.3f}", result.at("mpairs_per_s").get<double>()),
                   result.contains("driver_calls_per_pair")
                       ? fmt::format("{:.4f}", result.at("driver_calls_per_pair").get<double>())
                       : "-"});
    }
    return fmt::format("driver: {}\n\n{}{}{}{}", driver_line(report.at("driver")), table.text(),
                       recording_text(times_of_one_thread(report)),
                       tracking_text(times_of_one_thread(report)), errors);
}

bool bench_is_good(const Json &report) {
    const Json &results = report.at("results");
    return std::none_of(results.begin(), results.end(),
                        [](const Json &result) { return result.contains("error"); });
}

} // namespace emm::tool
