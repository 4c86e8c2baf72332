#include "bench/bench.h"

#include "bench/cases.h"
#include "bench/plan.h"
#include "bench/report.h"
#include "child.h"
#include "problem.h"
#include "progress.h"
#include "statistics.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace emm::tool {
namespace {

// Many short rounds, of which the median counts: what disturbs some of them does not show.
constexpr int rounds = 15;
constexpr double round_seconds = 0.01, threaded_round_seconds = 0.02;

// A folder for the event log of the case `logged`.
class ScratchLog {
public:
    ScratchLog() {
        char name[] = "/tmp/emm-bench-XXXXXX";
        folder_ = mkdtemp(name) ? name : "";
    }
    ~ScratchLog() {
        if (!folder_.empty()) {
            unlink(path()->c_str());
            unlink((*path() + ".spool").c_str());
            rmdir(folder_.c_str());
        }
    }
    ScratchLog(const ScratchLog &) = delete;
    ScratchLog &operator=(const ScratchLog &) = delete;
    std::optional<std::string> path() const { return folder_ + "/log.csv"; }

private:
    std::string folder_;
};

Changes changes_for(const PlannedSubject &subject, const ScratchLog &log) {
    // Both would be part of what is measured.
    Changes changes = {{"EMM_DRIVER_METER", std::nullopt},
                       {"EMM_EVENT_LOG", subject.kind == logged_kind ? log.path() : std::nullopt},
                       {"EMM_SIM", simulator_settings({"memory=256GiB"})}};
    if (subject.kind != plugin_kind) {
        changes.emplace_back("EMM_PLUGIN", std::nullopt);
    } else if (!subject.plugin.empty()) {
        changes.emplace_back("EMM_PLUGIN", subject.plugin);
    }
    return changes;
}

// A subject, its process, and whether it takes part.
struct Participant {
    PlannedSubject subject;
    std::unique_ptr<Child> child; // none: it does not take part
};

// One entry while its rounds are being run.
struct Measured {
    PlannedEntry planned;
    int id = 0;
    std::vector<double> ns, rates;
    std::optional<Problem> problem;
};

class Benches {
public:
    explicit Benches(const BenchOptions &options) : options_(options), plan_(make_plan(options)) {
        report_ = {{"driver", nullptr}, {"results", Json::array()}};
        for (const PlannedSubject &subject : plan_.subjects) {
            participants_.push_back({subject, nullptr});
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
        PlannedSubject &subject = participant.subject;
        const std::string label = subject.label().empty() ? "the plugin in force" : subject.label();
        try {
            auto child = std::make_unique<Child>(
                label, Json{{"job", "bench"}, {"kind", subject.kind}}, changes_for(subject, log_));
            const Json hello = child->receive();
            if (hello.contains("absent")) {
                fmt::print(stderr, "not measured: {}: {}\n", label,
                           hello.at("absent").get<std::string>());
                return;
            }
            if (subject.kind == plugin_kind && subject.plugin.empty()) {
                subject.plugin = hello.at("spec").get<std::string>();
            }
            if (!hello.at("driver").is_null()) {
                report_["driver"] = hello.at("driver");
            }
            participant.child = std::move(child);
        } catch (const Failure &failure) {
            does_not_start(subject, failure);
        }
    }

    void does_not_start(const PlannedSubject &subject, const Failure &failure) {
        if (subject.kind == plugin_kind && options_.plugins.size() <= 1) {
            throw failure;
        }
        Json result = {{"plugin", subject.label()}};
        result.update(to_json(failure.problem()));
        report_["results"].push_back(result);
    }

    void run_group(const std::vector<PlannedEntry> &entries, double share) {
        std::vector<Measured> group;
        for (const PlannedEntry &entry : entries) {
            if (participants_[entry.subject].child) {
                group.push_back({entry, next_id_++, {}, {}, std::nullopt});
            }
        }
        for (Measured &measured : group) {
            show(measured, share);
            const Entry &entry = measured.planned.entry;
            ask(measured,
                {{"id", measured.id},
                 {"set_up",
                  {{"case", entry.name}, {"threads", entry.threads}, {"size", entry.size}}}});
        }
        for (int round = 0; round < rounds; round++) {
            for (Measured &measured : group) {
                show(measured, share);
                run_round(measured);
            }
        }
        for (Measured &measured : group) {
            ask(measured, {{"id", measured.id}, {"take_down", true}}, true);
            report(measured);
        }
    }

    void run_round(Measured &measured) {
        const double seconds =
            measured.planned.entry.threads == 1 ? round_seconds : threaded_round_seconds;
        const Json answer = ask(measured, {{"id", measured.id}, {"seconds", seconds}});
        if (!measured.problem) {
            measured.ns.push_back(answer.at("ns_per_pair").get<double>());
            measured.rates.push_back(answer.at("mpairs_per_s").get<double>());
        }
    }

    // Nothing more is asked about an entry that has failed, but it is still taken down.
    Json ask(Measured &measured, const Json &order, bool always = false) {
        Participant &participant = participants_[measured.planned.subject];
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
        } catch (const Failure &failure) { // the process has ended, and with it its other entries
            measured.problem = failure.problem();
            participant.child.reset();
            return {};
        }
    }

    void report(const Measured &measured) {
        const Entry &entry = measured.planned.entry;
        Json result = {{"plugin", participants_[measured.planned.subject].subject.label()},
                       {"case", entry.name},
                       {"threads", entry.threads},
                       {"size", entry.size}};
        if (measured.problem) {
            result.update(to_json(*measured.problem));
        } else {
            result["ns_per_pair"] = std::round(median(measured.ns) * 100) / 100;
            result["mpairs_per_s"] = std::round(median(measured.rates) * 1000) / 1000;
        }
        report_["results"].push_back(result);
    }

    void show(const Measured &measured, double share) {
        const Entry &entry = measured.planned.entry;
        const std::string label = participants_[measured.planned.subject].subject.label();
        progress_.show(fmt::format("{} on {}", entry.name, label), share);
    }

    const BenchOptions &options_;
    const ScratchLog log_; // outlives the processes
    Progress progress_;
    Plan plan_;
    std::vector<Participant> participants_;
    Json report_;
    int next_id_ = 0;
};

} // namespace

int run_bench(const BenchOptions &options) {
    for (const std::string &name : options.cases) {
        find_case(name);
    }
    Benches benches(options);
    const Json &report = benches.run();
    fmt::print("{}", options.json ? dump(report, 2) + "\n" : bench_text(report));
    return bench_is_good(report) ? 0 : 1;
}

} // namespace emm::tool
