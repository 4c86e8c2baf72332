#include "replay/replay.h"

#include "driver.h"
#include "observe/text.h"
#include "problem.h"
#include "table.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

std::string figure(const Json &object, const char *key) {
    return std::to_string(object.at(key).get<uint64_t>());
}

std::string bytes(const Json &object, const char *key) {
    return in_bytes(object.at(key).get<uint64_t>());
}

// None if an allocation failed: what is live is the trace's.
std::string ratio(const Json &result) {
    const bool is_whole = result.at("failed").get<uint64_t>() == 0;
    const auto live = result.at("peak_live_bytes").get<double>();
    const auto reserved = result.at("peak_reserved_bytes").get<double>();
    return is_whole && live > 0 ? fmt::format("{:.3f}", reserved / live) : "-";
}

uint64_t all_calls(const Json &calls) {
    uint64_t sum = 0;
    for (const auto &[name, count] : calls.items()) {
        sum += count.get<uint64_t>();
    }
    return sum;
}

std::vector<std::string> row_of(const Json &result) {
    const Json &ns = result.at("ns_per_event");
    std::vector<std::string> row = {result.at("plugin").get<std::string>(),
                                    figure(result, "events"),
                                    figure(result, "failed"),
                                    bytes(result, "peak_live_bytes"),
                                    bytes(result, "peak_reserved_bytes"),
                                    ratio(result),
                                    bytes(result, "leaked"),
                                    figure(result, "early_handovers"),
                                    std::to_string(all_calls(result.at("driver_calls"))),
                                    figure(result, "driver_calls_second_half"),
                                    in_tenths(ns.at("mean").get<double>()),
                                    in_tenths(ns.at("p50").get<double>()),
                                    in_tenths(ns.at("p99").get<double>()),
                                    in_tenths(ns.at("p999").get<double>())};
    if (result.contains("share_of_time")) {
        row.push_back(fmt::format("{:.4f}", result.at("share_of_time").get<double>()));
    }
    return row;
}

bool is_good(const Json &result) {
    return !result.contains("error") && result.at("failed") == 0 && result.at("leaked") == 0 &&
           result.at("early_handovers") == 0;
}

} // namespace

std::string replay_text(const Json &report) {
    bool any = false;
    const bool paced = report.contains("pace");
    std::vector<std::string> columns = {"plugin",        "events",   "failed",   "peak live",
                                        "peak reserved", "ratio",    "leaked",   "early hand-overs",
                                        "driver calls",  "2nd half", "ns/event", "p50",
                                        "p99",           "p99.9"};
    if (paced) {
        columns.emplace_back("share of time");
    }
    Table table(columns);
    std::string errors;
    for (const Json &result : report.at("results")) {
        if (result.contains("error")) {
            errors += fmt::format("\n{}: {}\n", result.at("plugin").get<std::string>(),
                                  to_text(problem_from_json(result)));
        } else {
            table.add(row_of(result));
            any = true;
        }
    }
    return fmt::format("driver: {}\ntrace:  {}, {} order{}\n\n{}{}",
                       driver_line(report.at("driver")),
                       observe::one_line(report.at("trace").get<std::string>()),
                       report.at("order").get<std::string>(),
                       paced ? fmt::format(", pace {}", report.at("pace").get<double>()) : "",
                       any ? table.text() : "", errors);
}

bool replay_is_good(const Json &report) {
    const Json &results = report.at("results");
    return std::all_of(results.begin(), results.end(), is_good);
}

} // namespace emm::tool
