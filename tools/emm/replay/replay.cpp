#include "commands.h"

#include "child.h"
#include "driver.h"
#include "observe/text.h"
#include "print.h"
#include "problem.h"
#include "progress.h"
#include "table.h"
#include "trace/file.h"
#include "trace/reader.h"
#include "workload/workload.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

// Read once here, so that a bad file is refused before any process starts.
Trace checked(const ReplayOptions &options, const Input &trace) {
    Progress progress;
    const auto show = [&](double share) { progress.show("reading " + trace.name(), share); };
    return options.workload.empty() ? read_trace(trace.path(), trace.name(), show)
                                    : generate(options.workload, options.seed);
}

double longest_pause(const Trace &trace, double pace) {
    uint32_t gap = 0;
    for (const Event &event : trace.events) {
        gap = std::max(gap, event.gap);
    }
    return gap * pace * 1e-6;
}

Json job_of(const ReplayOptions &options, const std::string &trace) {
    return {{"job", "replay"},
            {"trace", trace},
            {"workload", options.workload},
            {"seed", options.seed},
            {"free_order", options.free_order},
            {"touch", options.touch},
            {"warm", options.warm},
            {"pace", options.pace}};
}

Changes changes_for(const ReplayOptions &options, const std::string &plugin) {
    Changes changes = {{"EMM_DRIVER_METER", "1"}};
    if (!plugin.empty()) {
        changes.emplace_back("EMM_PLUGIN", plugin);
    }
    std::vector<std::string> settings;
    if (options.touch) {
        settings.emplace_back("race=count");
    }
    if (options.pace > 0) {
        settings.emplace_back("progress=timed");
    }
    if (!settings.empty()) {
        changes.emplace_back("EMM_SIM", simulator_settings(settings));
    }
    return changes;
}

class Replays {
public:
    // `path` is the trace's.
    Replays(const ReplayOptions &options, std::string path, const Trace &trace)
        : options_(options), path_(std::move(path)),
          limit_(options.limit + longest_pause(trace, options.pace)) {
        report_ = {{"driver", nullptr},
                   {"trace", trace.name},
                   {"order", options.free_order ? "free" : "strict"},
                   {"results", Json::array()}};
        if (options.pace > 0) {
            report_["pace"] = options.pace;
        }
    }

    // `plugin` "": the plugin that the environment names.
    void add(const std::string &plugin) {
        const std::string name = plugin.empty() ? "the plugin in force" : plugin;
        try {
            Child child(name, job_of(options_, path_), changes_for(options_, plugin), {limit_});
            const Json answer =
                child.receive([&](double share) { progress_.show("replaying on " + name, share); });
            progress_.clear();
            report_["driver"] = answer.at("driver");
            Json result = {{"plugin", plugin.empty() ? answer.at("spec") : Json(plugin)}};
            result.update(answer.at("result"));
            report_["results"].push_back(result);
            for (const Json &note : answer.at("notes")) {
                print_error(fmt::format("{}: {}\n", result.at("plugin").get<std::string>(),
                                        note.get<std::string>()));
            }
        } catch (const Failure &failure) {
            progress_.clear();
            if (failure.problem().code == EMM_E_NO_DRIVER) {
                throw; // no plugin's result
            }
            Json result = {{"plugin", plugin.empty() ? Json() : Json(plugin)}};
            result.update(to_json(failure.problem()));
            report_["results"].push_back(result);
        }
    }

    const Json &report() const { return report_; }

private:
    const ReplayOptions &options_;
    const std::string path_;
    const double limit_;
    Progress progress_;
    Json report_;
};

void warn_of_shared_event_log(const ReplayOptions &options) {
    const char *log = std::getenv("EMM_EVENT_LOG");
    if (log && options.plugins.size() > 1 && std::string(log).find("%p") == std::string::npos) {
        print_error(fmt::format(
            "emm: EMM_EVENT_LOG: each plugin overwrites {}, so only the last plugin's events "
            "remain; put %p into the name to keep all events\n",
            log));
    }
}

// --- the report ---------------------------------------------------------------------------------

std::string figure(const Json &object, const char *key) {
    return std::to_string(object.at(key).get<uint64_t>());
}

std::string bytes(const Json &object, const char *key) {
    const Json &value = object.at(key);
    return value.is_null() ? "-" : in_bytes(value.get<uint64_t>());
}

// Empty if an allocation failed, because the live bytes are the trace's, or if the plugin has no
// figure.
std::string ratio(const Json &result) {
    const Json &reserved = result.at("peak_reserved_bytes");
    const bool is_whole = result.at("failed").get<uint64_t>() == 0 && !reserved.is_null();
    const auto live = result.at("peak_live_bytes").get<double>();
    return is_whole && live > 0 ? fmt::format("{:.3f}", reserved.get<double>() / live) : "-";
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

// The table for people, from the object that --json prints.
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

// Nothing failed, leaked or was handed over too early, and every plugin ran.
bool replay_is_good(const Json &report) {
    const Json &results = report.at("results");
    return std::all_of(results.begin(), results.end(), is_good);
}

} // namespace

int run_replay(const ReplayOptions &options) {
    const Input trace(options.trace);
    Replays replays(options, trace.path(), checked(options, trace));
    warn_of_shared_event_log(options);
    if (options.plugins.empty()) {
        replays.add("");
    }
    for (const std::string &plugin : options.plugins) {
        replays.add(plugin);
    }
    const Json &report = replays.report();
    const Json &results = report.at("results");
    if (results.size() == 1 && results.front().contains("error")) {
        throw Failure(problem_from_json(results.front()));
    }
    options.json ? print_json(report) : print(replay_text(report));
    return replay_is_good(report) ? 0 : 1;
}

} // namespace emm::tool
