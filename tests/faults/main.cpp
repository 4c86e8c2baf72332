// faults KIND PLUGIN... [-- WORKLOAD...]: makes each driver call (or allocation, start of a thread,
// other system call, or what a filter forbids) fail in turn during every use of emm.
//
// Without names, all workloads; those of a start that asks for more only where they are not long:
// each of their passes is a process. The filters are those of a sandbox (forbidden_call in
// fault.h).
//
// Prints a line with the number of failures for each workload, and a last line with their sum. Each
// workload has a process of its own, so that a crash is reported like other failures. With
// EMM_TEST_FAULT=N or N,M only these calls fail, with N+ all from N on, in this process, for a
// debugger.
#include "pass.h"
#include "starts.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace faults;

namespace {

constexpr unsigned most = 20000;      // in one loop: with more, the loop does not end
constexpr unsigned enough = 100;      // complaints, to give a loop up
constexpr unsigned pass_seconds = 60; // at most
constexpr unsigned reach = 12;        // calls after a failure that belong to its clean-up

// How failures are put together.
enum Way { once, onwards, twice, broken, forbidden, filtered, ways };
const char *const names[ways] = {"once",     "from there on", "twice",
                                 "for good", "of one name",   "by a filter"};

// The report of a process to the one that started it, whatever becomes of it.
struct Report {
    unsigned long failures[ways];
    unsigned complaints;
    bool refused;
    bool done;
    // of a single pass
    unsigned failed;
    char doing[160];
};

template <class Type> Type *shared() {
    void *const at =
        mmap(nullptr, sizeof(Type), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED, "shared memory");
    return new (at) Type();
}

Report *const report = shared<Report>();

void tell(const Verdict &verdict, const char *plugin, const Workload &workload) {
    for (const std::string &complaint : verdict.complaints) {
        if (++report->complaints <= 40) {
            std::fprintf(stderr, "%s, %s, %s%s%s: %s\n", plugin, workload.name, report->doing,
                         verdict.outcome.last.empty() ? "" : " at ", verdict.outcome.last.c_str(),
                         complaint.c_str());
        }
    }
}

// Runs `what` in a child. False: the child did not reach its end.
template <class What> bool in_child(What what, const char *plugin, const Workload &workload) {
    std::fflush(nullptr);
    report->done = false;
    const pid_t child = fork();
    if (child == 0) {
        what();
        report->done = true;
        std::fflush(nullptr);
        std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && report->done) {
        return true;
    }
    ++report->complaints;
    std::fprintf(stderr, "%s, %s, %s: the process %s %d\n", plugin, workload.name, report->doing,
                 WIFSIGNALED(status) ? "died of signal" : "ended with",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return false;
}

void begin(const Workload &workload) {
    if (workload.prepare) {
        workload.prepare();
    }
    open_driver();
}

struct Setup {
    const char *plugin;
    const Workload &workload;
    const Offer *offer;

    // The number of failures; 0 also if it cannot be known.
    unsigned fail(const Plan &plan) const {
        std::snprintf(report->doing, sizeof report->doing, "%s", text_of(plan).c_str());
        if (in_own_process(plan.kind)) {
            const bool ended = in_child([&] { fail_here(plan); }, plugin, workload);
            return ended ? report->failed : 1;
        }
        fail_here(plan);
        return report->failed;
    }

    // A thread that has been started stays, and so does a filter.
    bool in_own_process(Kind kind) const {
        return workload.leaves == Leaves::no_process || kind == Kind::threads ||
               kind == Kind::sandbox;
    }

private:
    void fail_here(const Plan &plan) const {
        if (in_own_process(plan.kind)) {
            begin(workload);
        }
        alarm(pass_seconds);
        const Verdict verdict = pass(workload, plan, offer);
        alarm(0);
        tell(verdict, plugin, workload);
        report->failed = verdict.outcome.failed;
    }
};

void fail_in_turn(const Setup &setup, Plan plan, Way way) {
    for (plan.first = 1; plan.first < most && report->complaints < enough; ++plan.first) {
        const unsigned failed = setup.fail(plan);
        if (failed == 0) {
            return;
        }
        report->failures[way] += failed;
    }
    must(report->complaints >= enough, "an end without a failure");
}

void fail_twice(const Setup &setup) {
    for (unsigned first = 1; first < most; ++first) {
        for (unsigned second = first + 1; second <= first + reach; ++second) {
            const unsigned failed = setup.fail({Kind::driver, first, false, second, 0});
            if (failed == 0) {
                return;
            }
            if (failed == 1) {
                break;
            }
            report->failures[twice] += failed;
        }
    }
}

// As a sandbox does, which forbids one call for as long as the process lives.
void forbid_each(const Setup &setup) {
    for (unsigned i = 0; const char *const name = system_call(i); ++i) {
        report->failures[forbidden] += setup.fail({Kind::system, 1, true, 0, 0, name});
    }
}

void filter_each(const Setup &setup) {
    for (unsigned i = 0; const char *const name = forbidden_call(i); ++i) {
        for (const int error : {EPERM, ENOSYS}) {
            report->failures[filtered] +=
                setup.fail({Kind::sandbox, i + 1, true, 0, 0, name, error});
        }
    }
}

void run_loops(const Setup &setup, Kind kind) {
    constexpr int illegal_address = 700;
    if (kind == Kind::sandbox) {
        return filter_each(setup);
    }
    fail_in_turn(setup, {kind, 1, false, 0, 0}, once);
    if (kind == Kind::threads) {
        return;
    }
    fail_in_turn(setup, {kind, 1, true, 0, 0}, onwards);
    if (kind == Kind::system) {
        forbid_each(setup);
    }
    if (kind == Kind::driver) {
        if (!std::getenv("EMM_TEST_NO_PAIRS")) {
            fail_twice(setup);
        }
        // Last: a capture in a broken context cannot be ended, and forbids the thread to wait.
        fail_in_turn(setup, {kind, 1, false, 0, illegal_address}, broken);
    }
}

void set_environment(const Workload &workload) {
    for (const auto &[name, value] : workload.environment) {
        std::string text = value;
        const size_t place = text.find("%d");
        setenv(name, place == text.npos ? value : text.replace(place, 2, own_folder()).c_str(), 1);
    }
}

void run_workload(const char *plugin, const Workload &workload, Kind kind) {
    setenv("EMM_PLUGIN", plugin, 1);
    set_environment(workload);
    const Offer *const offer = workload.needs_offer ? new Offer : nullptr;
    std::snprintf(report->doing, sizeof report->doing, "in peace");
    const auto try_it = [&] {
        begin(workload);
        const Verdict verdict = pass_in_peace(workload, offer);
        report->refused = verdict.refused || (offer && !offer->is_there());
        if (!report->refused) {
            tell(verdict, plugin, workload);
        }
    };
    if (!in_child(try_it, plugin, workload) || report->refused || report->complaints) {
        delete offer;
        return;
    }
    const Setup setup = {plugin, workload, offer};
    if (!setup.in_own_process(kind)) {
        begin(workload);
        pass_in_peace(workload, offer); // makes the objects of a process that are made once
    }
    run_loops(setup, kind);
    delete offer;
}

// The number of failures.
unsigned long run_and_tell(const char *plugin, const Workload &workload, Kind kind) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    *report = {};
    const auto run = [&] {
        prctl(PR_SET_NAME, workload.name);
        run_workload(plugin, workload, kind);
    };
    in_child(run, plugin, workload);
    std::string text = report->refused ? " not supported" : "";
    unsigned long sum = 0;
    for (int way = 0; way < ways; ++way) {
        sum += report->failures[way];
        if (report->failures[way]) {
            text += (text.empty() ? " " : ", ") + std::to_string(report->failures[way]) + " " +
                    names[way];
        }
    }
    std::printf("%-16s %-12s %s%s; %.1f s\n", plugin, workload.name, text.c_str(),
                report->complaints
                    ? (", " + std::to_string(report->complaints) + " COMPLAINTS").c_str()
                    : "",
                std::chrono::duration<double>(Clock::now() - begin).count());
    return sum;
}

int run_one(const char *plugin, const Workload &workload, Plan plan, const char *which) {
    char *end = nullptr;
    plan.first = static_cast<unsigned>(std::strtoul(which, &end, 10));
    plan.onwards = *end == '+';
    plan.second = *end == ',' ? static_cast<unsigned>(std::strtoul(end + 1, nullptr, 10)) : 0;
    setenv("EMM_PLUGIN", plugin, 1);
    set_environment(workload);
    const Offer *const offer = workload.needs_offer ? new Offer : nullptr;
    begin(workload);
    if (workload.leaves != Leaves::no_process && plan.kind != Kind::threads) {
        pass_in_peace(workload, offer);
    }
    tell(pass(workload, plan, offer), plugin, workload);
    return report->complaints != 0;
}

bool is_named(const Workload &workload, char **names) {
    bool found = !*names;
    for (; *names; ++names) {
        found = found || std::strcmp(workload.name, *names) == 0;
    }
    return found;
}

bool read_kind(const char *text, Kind &ret_kind) {
    const char *const kinds[] = {"driver", "memory", "threads", "system", "sandbox"};
    for (int i = 0; i < 5; ++i) {
        if (std::strcmp(text, kinds[i]) == 0) {
            ret_kind = static_cast<Kind>(i);
            return true;
        }
    }
    return false;
}

} // namespace

int main(int argc, char *argv[]) {
    Kind kind;
    if (argc < 3 || !read_kind(argv[1], kind)) {
        std::fprintf(
            stderr,
            "usage: faults driver|memory|threads|system|sandbox PLUGIN... [-- WORKLOAD...]\n");
        return 2;
    }
    char **wanted = argv + 2;
    while (*wanted && std::strcmp(*wanted, "--") != 0) {
        ++wanted;
    }
    char **const plugins_end = wanted;
    wanted += *wanted ? 1 : 0;
    own_folder();
    unsigned long sum = 0, complaints = 0, runs = 0;
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core); // 64 GiB of nothing take a while to write
    for (char **plugin = argv + 2; plugin != plugins_end; ++plugin) {
        for (const Workload &workload : workloads()) {
            const bool is_long = kind != Kind::threads && kind != Kind::sandbox;
            if (const char *one = std::getenv("EMM_TEST_FAULT");
                one && is_named(workload, wanted)) {
                return run_one(*plugin, workload, {kind, 0, false, 0, 0}, one);
            }
            if ((kind == Kind::threads && !workload.starts_threads) ||
                (workload.only_host && is_long && !*wanted)) {
                continue;
            }
            if (is_named(workload, wanted)) {
                sum += run_and_tell(*plugin, workload, kind);
                complaints += report->complaints;
                ++runs;
            }
        }
    }
    remove_own_folder();
    std::printf("total: %lu failures of %s in %lu workloads, %lu complaints\n", sum,
                kind == Kind::driver    ? "driver calls"
                : kind == Kind::memory  ? "allocations"
                : kind == Kind::system  ? "system calls"
                : kind == Kind::sandbox ? "filters"
                                        : "threads",
                runs, complaints);
    return complaints != 0 || sum == 0;
}
