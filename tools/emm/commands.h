// The options of each command, and the function that carries it out.
#pragma once

#include "json.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace emm::tool {

class Parent;
class WriteSignalsIgnored;

// --- in this process: each run_* returns the exit status and throws Failure ----------------------

struct InfoOptions {
    std::string spec; // empty: the plugin in force
    bool json = false;
    double limit = 30; // seconds that loading a plugin may take
};
int run_info(const InfoOptions &options);

struct ReplayOptions {
    std::string trace;    // a file, - for standard input; empty: `workload`
    std::string workload; // a built-in one
    uint64_t seed = 1;
    bool free_order = false;
    bool touch = false;
    bool warm = false;
    double pace = 0; // of the recording's times between calls; 0: without a pause
    bool json = false;
    double limit = 120;               // seconds that a process may be silent
    std::vector<std::string> plugins; // empty: the plugins that the environment names
};
int run_replay(const ReplayOptions &options);

struct BenchOptions {
    std::vector<std::string> plugins; // empty: the plugins that the environment names
    std::vector<std::string> cases;   // empty: all
    std::vector<uint32_t> threads = {1};
    std::vector<uint64_t> sizes; // empty: each case's own
    bool json = false;
};
int run_bench(const BenchOptions &options);

struct EventsOptions {
    std::string log; // a file
    bool json = false;
};
int run_events(const EventsOptions &options);

struct CheckOptions {
    std::string spec;
    std::vector<std::string> filters; // parts of names of cases, or requirements; empty: all
    uint64_t seed = 1;
    double limit = 30; // seconds for one case
    unsigned jobs = 0; // cases at a time; 0: one for each processor
    bool list = false;
    bool json = false;
};
int run_check(const CheckOptions &options);

struct RunOptions {
    std::optional<std::string> plugin;  // none: the plugin in EMM_PLUGIN
    std::optional<std::string> limit;   // EMM_LIMIT
    std::optional<std::string> shared;  // EMM_LIMIT_SHARED
    std::optional<std::string> record;  // the event log
    std::optional<std::string> track;   // EMM_TRACK
    std::optional<std::string> release; // modules whose caches give back, separated by commas
    bool sync_free = false;
    bool zero = false;
    bool pausable = false;
    bool no_children = false;
    bool audit = false;
    bool print_env = false;
    std::vector<std::string> program; // with its arguments
};
// Becomes the program, which gets the signals as they were.
int run_program(const RunOptions &options, WriteSignalsIgnored &signals);

struct ExportOptions {
    std::string log;              // a file, - for standard input; empty: a process
    int64_t pid = 0;              // in place of a log; 0: none
    std::string to;               // torch-snapshot, chrome-trace or pprof
    std::string output;           // a file; empty: standard output
    std::optional<uint64_t> last; // events
    bool json = false;
};
int run_export(const ExportOptions &options);

struct ImportOptions {
    std::string file;         // - for standard input
    std::string from;         // torch-snapshot, rmm or kineto; empty: by the first bytes
    std::string to = "trace"; // or event-log
    std::string output;       // a file; empty: standard output
    std::optional<uint64_t> device;
    bool json = false;
};
int run_import(const ImportOptions &options);

struct NewOptions {
    std::string name;
    bool c = false, cpp = false, layer = false, cmake = false, meson = false;
    bool json = false;
};
int run_new(const NewOptions &options);

struct TopOptions {
    bool json = false, prometheus = false;
    std::string output;  // a file for Prometheus; empty: standard output
    int64_t dump = 0;    // a process
    double interval = 0; // seconds; 0: not given
    uint64_t count = 0;  // of tables or objects; 0: not given
    std::string sort = "reserved";
};
int run_top(const TopOptions &options);

struct LimitOptions {
    std::string whose; // a process id, or the name of a group
    std::string size;  // as EMM_LIMIT
    bool json = false;
};
int run_limit(const LimitOptions &options);

struct SetOptions {
    int64_t pid = 0;
    std::vector<std::string> words; // a pool's name (optional) and key=value
    bool json = false;
};
int run_set(const SetOptions &options);

struct PauseOptions {
    int64_t pid = 0;
    std::string pool; // its name; empty: all
    bool discard = false;
    double limit = 10; // seconds that the device's work may take to end
    bool keep_copy = false;
    bool json = false;
};
int run_pause(const PauseOptions &options);
int run_resume(const PauseOptions &options);

struct ReportOptions {
    std::string input; // an event log or trace; - for standard input
    // The page; - for standard output. None: report.html, or with `json` no page.
    std::optional<std::string> output;
    std::string plugin;               // replayed for figures that the input lacks; empty: none
    std::vector<std::string> compare; // several, side by side
    std::string against;              // a recording of an earlier run; empty: none
    std::optional<double> from, to;   // seconds of the recording
    std::optional<int64_t> step;      // of a trace with marks
    std::optional<uint64_t> device;   // of a snapshot with several
    double limit = 120;               // seconds that a replay may be silent
    bool json = false;
};
int run_report(const ReportOptions &options);

// --- in a process of its own, for the command's parent -------------------------------------------

void run_info_job(const Json &job, Parent &parent);     // the plugin is loaded and described
void run_describe_job(const Json &job, Parent &parent); // for the description alone
void run_replay_job(const Json &job, Parent &parent);   // through the plugin of the environment
void run_bench_job(const Json &job, Parent &parent);    // one candidate's measurements
// Describes the plugin, runs one case, or is the other side of sharing, as the job says.
void run_check_job(const Json &job, Parent &parent);

// --- the command line ----------------------------------------------------------------------------

// A command of the command line, with its action. It owns its options.
struct Command {
    CLI::App *app;
    std::function<int()> run;
};

std::vector<Command> process_commands(CLI::App &app); // top, limit, set, pause, resume

// `program`: of `emm run`, with its arguments, once the command line is read.
std::vector<Command> make_commands(CLI::App &app, const std::vector<std::string> &program,
                                   WriteSignalsIgnored &signals);

// Reads the command line and runs its command; returns the exit status.
int run_command_line(int argc, char **argv);

} // namespace emm::tool
