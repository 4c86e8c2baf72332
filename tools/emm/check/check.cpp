#include "commands.h"

#include "check/report.h"
#include "child.h"
#include "clock.h"
#include "observe/suggest.h"
#include "problem.h"
#include "progress.h"
#include "threads.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <fmt/format.h>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <unistd.h>

namespace emm::tool {
namespace {

using check::CaseOutcome;
using check::Planned;

// Each case chooses its plugin from code, and emm's limits are the defaults.
Changes changes_for(const std::string &simulator) {
    return {{"EMM_PLUGIN", std::nullopt},
            {"EMM_EVENT_LOG", std::nullopt},
            {"EMM_MAX_PENDING_DEALLOCS_COUNT", std::nullopt},
            {"EMM_MAX_PENDING_DEALLOCS_RATIO", std::nullopt},
            {"EMM_SIM", simulator}};
}

// An unlinked file for a process's standard error.
class Pad {
public:
    Pad() : file_(std::tmpfile()) {}
    ~Pad() {
        if (file_) {
            std::fclose(file_);
        }
    }
    Pad(const Pad &) = delete;
    Pad &operator=(const Pad &) = delete;
    int descriptor() const { return file_ ? fileno(file_) : STDERR_FILENO; }

    // The last part of the output is enough.
    std::string text() const {
        constexpr long most = 4000;
        if (!file_ || std::fseek(file_, 0, SEEK_END) != 0) {
            return "";
        }
        std::fseek(file_, std::max(0L, std::ftell(file_) - most), SEEK_SET);
        std::string text(most, '\0');
        text.resize(std::fread(text.data(), 1, text.size(), file_));
        return text;
    }

private:
    std::FILE *file_;
};

Json describe(const CheckOptions &options) {
    const Planned nothing = {&check::cases().front(), ""};
    const Json job = {{"job", "check-describe"}, {"spec", options.spec}};
    Progress progress;
    progress.show("loading " + options.spec);
    Child child(options.spec, job, changes_for(check::simulator_settings(nothing, options.seed)),
                {options.limit});
    return child.receive();
}

// Cases run side by side and are reported in their order.
class CheckRun {
public:
    CheckRun(const CheckOptions &options, const Json &plugin, const std::vector<Planned> &planned)
        : options_(options), plugin_(plugin), planned_(planned), outcomes_(planned.size()) {}

    void work() {
        for (;;) {
            const size_t i = next();
            if (i >= planned_.size()) {
                return;
            }
            const CaseOutcome outcome = run(planned_[i]);
            const std::lock_guard lock(mutex_);
            outcomes_[i] = outcome;
            ended_.notify_all();
        }
    }

    CaseOutcome wait_for(size_t i) {
        std::unique_lock lock(mutex_);
        ended_.wait(lock, [&] { return outcomes_[i].has_value(); });
        return *outcomes_[i];
    }

    void begin_no_more() {
        const std::lock_guard lock(mutex_);
        next_ = planned_.size();
    }

private:
    size_t next() {
        const std::lock_guard lock(mutex_);
        return next_++;
    }

    CaseOutcome run(const Planned &planned) const {
        const Pad pad;
        const double begun = seconds_now();
        CaseOutcome outcome = run_child(planned, pad.descriptor());
        outcome.seconds = seconds_now() - begun;
        outcome.output = pad.text();
        return outcome;
    }

    CaseOutcome run_child(const Planned &planned, int errors) const {
        const Json job = {{"job", "check-case"},   {"case", planned.entry->name},
                          {"mode", planned.mode},  {"seed", options_.seed},
                          {"spec", options_.spec}, {"plugin", plugin_}};
        try {
            Child child(planned.name(), job,
                        changes_for(check::simulator_settings(planned, options_.seed)),
                        {options_.limit, errors});
            const Json answer = child.receive();
            const std::string end = child.finish();
            CaseOutcome outcome;
            outcome.state = answer.at("outcome").get<std::string>();
            outcome.message = answer.at("message").get<std::string>();
            if (!end.empty() && outcome.state != "failed") {
                outcome.state = "failed";
                outcome.message = "all went well, but then the process " + end;
            }
            return outcome;
        } catch (const Failure &failure) {
            return {"failed", failure.problem().message, "", 0};
        }
    }

    const CheckOptions &options_;
    const Json &plugin_;
    const std::vector<Planned> &planned_;
    std::mutex mutex_;
    std::condition_variable ended_;
    size_t next_ = 0;
    std::vector<std::optional<CaseOutcome>> outcomes_;
};

// Threads that run cases. A report that cannot be written ends the run: running cases end, and no
// further case begins.
class Workers {
public:
    Workers(CheckRun &run, unsigned count) : run_(run) {
        threads_.reserve(count);
        try {
            while (threads_.size() < count) {
                threads_.push_back(start_thread(threads_.size(), count, [&run] { run.work(); }));
            }
        } catch (const Failure &failure) { // no room for the cases' processes either
            end();
            Problem problem = failure.problem();
            problem.hint = "--jobs tells how many cases run at once";
            throw Failure(problem);
        }
    }
    ~Workers() { end(); }
    Workers(const Workers &) = delete;
    Workers &operator=(const Workers &) = delete;

private:
    void end() {
        run_.begin_no_more();
        for (std::thread &thread : threads_) {
            thread.join();
        }
    }

    CheckRun &run_;
    std::vector<std::thread> threads_;
};

unsigned jobs_of(const CheckOptions &options) {
    return options.jobs ? options.jobs : std::max(1u, std::thread::hardware_concurrency());
}

// A filter may be meant as the whole name of a case, without "@MODE", or as a requirement.
Failure no_case(const CheckOptions &options) {
    std::vector<std::string> known;
    for (const check::Case &entry : check::cases()) {
        const std::string name = entry.name;
        std::istringstream requirements(entry.requirements);
        known.push_back(name);
        known.push_back(name.substr(0, name.find('/')));
        known.insert(known.end(), std::istream_iterator<std::string>(requirements), {});
    }
    Problem problem;
    problem.stage = "usage";
    problem.hint = observe::suggestion(options.filters.front(), known);
    problem.message = fmt::format(
        "check: --filter: expected a part of a case's name, or a requirement, "
        "found '{}', which names no case (--list without it shows all){}{}",
        fmt::join(options.filters, "', '"), problem.hint.empty() ? "" : "; ", problem.hint);
    return Failure(problem);
}

} // namespace

int run_check(const CheckOptions &options) {
    const bool listing = options.list;
    const Json plugin = listing ? Json() : describe(options);
    const auto planned = check::plan(options, listing || plugin.at("simulated").get<bool>());
    if (planned.empty()) {
        throw no_case(options);
    }
    if (listing) {
        check::list(planned, options.json);
        return 0;
    }
    const double begun = seconds_now();
    check::Report report(options, plugin);
    CheckRun run(options, plugin, planned);
    {
        const Workers workers(run, jobs_of(options));
        Progress progress;
        for (size_t i = 0; i < planned.size(); i++) {
            progress.show(planned[i].name(),
                          static_cast<double>(i) / static_cast<double>(planned.size()));
            const CaseOutcome outcome = run.wait_for(i);
            progress.clear();
            report.add(planned[i], outcome);
        }
    }
    report.end(seconds_now() - begun);
    return report.good() ? 0 : 1;
}

} // namespace emm::tool
