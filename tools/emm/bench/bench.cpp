#include "commands.h"

#include "bench/plan.h"
#include "child.h"
#include "driver.h"
#include "print.h"
#include "problem.h"
#include "progress.h"
#include "statistics.h"
#include "table.h"
#include "trace/file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace emm::tool {
namespace {

// Many short rounds, of which the median counts: a disturbance of some rounds does not show.
constexpr int rounds = 15;
constexpr double round_seconds = 0.01, threaded_round_seconds = 0.02;

// A folder for the event log of the case `logged`, made when it is asked for. A signal that ends
// the process removes it too.
class ScratchLog {
public:
    ScratchLog() = default;
    ~ScratchLog() { remove(); }
    ScratchLog(const ScratchLog &) = delete;
    ScratchLog &operator=(const ScratchLog &) = delete;

    std::string path() const {
        if (folder_.empty()) {
            make();
        }
        return log_;
    }

private:
    static void make() {
        std::string name = temporary_folder() + "/emm-bench-XXXXXX";
        if (!mkdtemp(name.data())) {
            throw Failure(
                {.stage = "bench",
                 .message = fmt::format("cannot make a folder in {} for the event log: {}",
                                        temporary_folder(), std::strerror(errno)),
                 .path = temporary_folder()});
        }
        log_ = name + "/log.csv";
        spool_ = log_ + ".spool";
        folder_ = name;
        for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
            struct sigaction own = {}, before = {};
            own.sa_handler = &end;
            own.sa_flags = SA_RESETHAND;
            if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_DFL) {
                sigaction(signal, &own, nullptr);
            }
        }
    }
    static void end(int signal) {
        remove();
        raise(signal);
    }
    static void remove() noexcept {
        unlink(log_.c_str());
        unlink(spool_.c_str());
        rmdir(folder_.c_str());
    }

    static inline std::string folder_, log_, spool_; // "": not made
};

// Whether a process measures times or counts driver calls.
enum class Task { timing, counting };

Changes changes_for(const PlannedCandidate &candidate, const ScratchLog &log, Task task) {
    using Value = std::optional<std::string>;
    // Both would add to the measured time.
    Changes changes = {
        {"EMM_DRIVER_METER", task == Task::counting ? Value("1") : std::nullopt},
        {"EMM_EVENT_LOG", candidate.kind == logged_kind ? Value(log.path()) : std::nullopt},
        {"EMM_TRACK", candidate.kind == tracked_kind  ? Value("module")
                      : candidate.kind == stacks_kind ? Value("stack")
                                                      : std::nullopt},
        {"EMM_SIM", simulator_settings({"memory=256GiB"})}};
    if (candidate.kind != plugin_kind) {
        changes.emplace_back("EMM_PLUGIN", std::nullopt);
    } else if (!candidate.plugin.empty()) {
        changes.emplace_back("EMM_PLUGIN", candidate.plugin);
    }
    return changes;
}

// A candidate, its process, and whether it takes part.
struct Participant {
    PlannedCandidate candidate;
    std::unique_ptr<Child> child; // none: the candidate takes no part
};

// One measurement during its rounds.
struct Measured {
    PlannedMeasurement planned;
    int id = 0;
    std::vector<double> ns, rates;
    std::optional<double> driver_calls; // per pair, for the cases that count them
    std::optional<Problem> problem;
};

class Benches {
public:
    explicit Benches(const BenchOptions &options) : options_(options), plan_(make_plan(options)) {
        report_ = {{"driver", nullptr}, {"results", Json::array()}};
        for (const PlannedCandidate &candidate : plan_.candidates) {
            participants_.push_back({candidate, nullptr});
            start(participants_.back());
        }
    }

    const Json &run() {
        for (size_t i = 0; i < plan_.groups.size(); i++) {
            run_group(plan_.groups[i],
                      static_cast<double>(i) / static_cast<double>(plan_.groups.size()));
        }
        progress_.clear();
        return report_;
    }

private:
    void start(Participant &participant) {
        PlannedCandidate &candidate = participant.candidate;
        const std::string label =
            candidate.label().empty() ? "the plugin in force" : candidate.label();
        try {
            auto child = launch(candidate, label, Task::timing);
            const Json hello = child->receive();
            if (hello.contains("absent")) {
                print_error(fmt::format("not measured: {}: {}\n", label,
                                        hello.at("absent").get<std::string>()));
                return;
            }
            if (candidate.kind == plugin_kind && candidate.plugin.empty()) {
                candidate.plugin = hello.at("spec").get<std::string>();
            }
            if (!hello.at("driver").is_null()) {
                report_["driver"] = hello.at("driver");
            }
            participant.child = std::move(child);
        } catch (const Failure &failure) {
            does_not_start(candidate, failure);
        }
    }

    std::unique_ptr<Child> launch(const PlannedCandidate &candidate, const std::string &label,
                                  Task task) {
        return std::make_unique<Child>(label, Json{{"job", "bench"}, {"kind", candidate.kind}},
                                       changes_for(candidate, log_, task));
    }

    void does_not_start(const PlannedCandidate &candidate, const Failure &failure) {
        if ((candidate.kind == plugin_kind && options_.plugins.size() <= 1) ||
            failure.problem().code == EMM_E_NO_DRIVER) {
            throw failure;
        }
        Json result = {{"plugin", candidate.label()}};
        result.update(to_json(failure.problem()));
        report_["results"].push_back(result);
    }

    void run_group(const std::vector<PlannedMeasurement> &measurements, double share) {
        std::vector<Measured> group;
        for (const PlannedMeasurement &measurement : measurements) {
            if (participants_[measurement.candidate].child) {
                group.push_back({measurement, next_id_++, {}, {}, {}, {}});
            }
        }
        for (Measured &measured : group) {
            show(measured, share);
            ask(measured, set_up_order(measured));
        }
        for (int round = 0; round < rounds; round++) {
            for (Measured &measured : group) {
                show(measured, share);
                run_round(measured);
            }
        }
        for (Measured &measured : group) {
            ask(measured, {{"id", measured.id}, {"take_down", true}}, true);
        }
        for (Measured &measured : group) {
            count_driver_calls(measured);
            report(measured);
        }
    }

    static Json set_up_order(const Measured &measured) {
        const Measurement &measurement = measured.planned.measurement;
        return {{"id", measured.id},
                {"set_up",
                 {{"case", measurement.name},
                  {"threads", measurement.threads},
                  {"size", measurement.size}}}};
    }
    static Json round_order(const Measured &measured) {
        const double seconds =
            measured.planned.measurement.threads == 1 ? round_seconds : threaded_round_seconds;
        return {{"id", measured.id}, {"seconds", seconds}};
    }

    // The first round takes memory from the driver, and the second finds it cached.
    void count_driver_calls(Measured &measured) {
        const PlannedCandidate &candidate = participants_[measured.planned.candidate].candidate;
        if (measured.problem || candidate.kind != plugin_kind ||
            !counts_driver_calls(measured.planned.measurement.name)) {
            return;
        }
        try {
            const auto child = launch(candidate, candidate.label(), Task::counting);
            child->receive();
            Json answer;
            for (const Json &order :
                 {set_up_order(measured), round_order(measured), round_order(measured)}) {
                child->send(order);
                answer = child->receive();
                if (answer.contains("failed")) {
                    throw Failure(problem_from_json(answer.at("failed")));
                }
            }
            measured.driver_calls =
                answer.at("driver_calls").get<double>() / answer.at("pairs").get<double>();
        } catch (const Failure &failure) {
            measured.problem = failure.problem();
        }
    }

    void run_round(Measured &measured) {
        const Json answer = ask(measured, round_order(measured));
        if (!measured.problem) {
            measured.ns.push_back(answer.at("ns_per_pair").get<double>());
            measured.rates.push_back(answer.at("mpairs_per_s").get<double>());
        }
    }

    // A measurement that has failed gets no further requests, but is still taken down.
    Json ask(Measured &measured, const Json &order, bool always = false) {
        Participant &participant = participants_[measured.planned.candidate];
        if (!participant.child || (measured.problem && !always)) {
            return {};
        }
        try {
            participant.child->send(order);
            const Json answer = participant.child->receive();
            if (answer.contains("failed")) {
                measured.problem = problem_from_json(answer.at("failed"));
            }
            return answer;
        } catch (
            const Failure &failure) { // the process has ended, and with it its other measurements
            measured.problem = failure.problem();
            participant.child.reset();
            return {};
        }
    }

    void report(const Measured &measured) {
        const Measurement &measurement = measured.planned.measurement;
        Json result = {{"plugin", participants_[measured.planned.candidate].candidate.label()},
                       {"case", measurement.name},
                       {"threads", measurement.threads},
                       {"size", measurement.size}};
        if (measured.problem) {
            result.update(to_json(*measured.problem));
        } else {
            result["ns_per_pair"] = std::round(median(measured.ns) * 100) / 100;
            result["mpairs_per_s"] = std::round(median(measured.rates) * 1000) / 1000;
            if (measured.driver_calls) {
                result["driver_calls_per_pair"] = std::round(*measured.driver_calls * 1e4) / 1e4;
            }
        }
        report_["results"].push_back(result);
    }

    void show(const Measured &measured, double share) {
        const Measurement &measurement = measured.planned.measurement;
        const std::string label = participants_[measured.planned.candidate].candidate.label();
        progress_.show(fmt::format("{} on {}", measurement.name, label), share);
    }

    const BenchOptions &options_;
    const ScratchLog log_; // outlives the processes
    Progress progress_;
    Plan plan_;
    std::vector<Participant> participants_;
    Json report_;
    int next_id_ = 0;
};

// --- the report ---------------------------------------------------------------------------------

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

// The table for people, from the object that --json prints.
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

// Nothing failed.
bool bench_is_good(const Json &report) {
    const Json &results = report.at("results");
    return std::none_of(results.begin(), results.end(),
                        [](const Json &result) { return result.contains("error"); });
}

} // namespace

int run_bench(const BenchOptions &options) {
    for (const std::string &name : options.cases) {
        find_case(name);
    }
    Benches benches(options);
    const Json &report = benches.run();
    options.json ? print_json(report) : print(bench_text(report));
    return bench_is_good(report) ? 0 : 1;
}

} // namespace emm::tool
