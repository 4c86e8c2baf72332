#include "command_line.h"

#include "bench/bench.h"
#include "check/check.h"
#include "events.h"
#include "exchange/commands.h"
#include "info.h"
#include "manual/pages.h"
#include "new/new.h"
#include "print.h"
#include "problem.h"
#include "replay/replay.h"
#include "report/report.h"
#include "run/run.h"
#include "spec.h"
#include "top/top.h"
#include "usage.h"
#include "workload/workload.h"

#include <emm/emm.h>
#include <emm/plugin_helpers.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sstream>

namespace emm::tool {
namespace {

constexpr int failed = 1, wrong_usage = 2;

class CommandLine {
public:
    CommandLine() : app_(help_about, "emm") {
        app_.footer(help_footer());
        app_.require_subcommand(0, 1); // what is none of them is named then
        app_.formatter(help_formatter());
        app_.get_formatter()->column_width(34);
        app_.add_option("--generate-manual", manual_)->group(""); // for the build
        app_.set_version_flag("--version", std::string("emm ") + emm_version());
        add_info();
        add_replay();
        add_bench();
        add_events();
        add_check();
        add_run();
        export_command_ = add_export_command(app_, export_);
        import_command_ = add_import_command(app_, import_);
        new_command_ = add_new_command(app_, new_);
        top_command_ = add_top_command(app_, top_);
        report_command_ = add_report_command(app_, report_);
    }

    int run(int argc, char **argv) {
        try {
            if (const std::optional<int> status = parse(argc, argv)) {
                return *status;
            }
            if (!manual_.empty()) {
                print_as_is(manual::generate(app_, manual_));
                return 0;
            }
            if (app_.get_subcommands().empty()) {
                throw usage(fmt::format("expected a command: {}, found none (--help says what they "
                                        "do)",
                                        fmt::join(names_of_commands(app_), ", ")));
            }
            return dispatch();
        } catch (const Failure &failure) {
            return tell(failure.problem());
        } catch (const std::bad_alloc &) {
            return tell(unexpected(EMM_E_OUT_OF_HOST_MEMORY, "out of memory"));
        } catch (const std::exception &error) {
            return tell(
                unexpected(EMM_E_INVALID_VALUE, std::string("the tool failed: ") + error.what()));
        }
    }

private:
    // The exit status, if that is all.
    std::optional<int> parse(int argc, char **argv) {
        try {
            const int count = take_program(argc, argv);
            json_ = asks_for_json({argv + 1, argv + count});
            app_.parse(count, argv);
            return std::nullopt;
        } catch (const CLI::Success &wish) {
            std::ostringstream help;
            app_.exit(wish, help);
            print(help.str());
            return 0;
        } catch (const CLI::ParseError &error) {
            const int status = tell(usage_problem(app_, error));
            print_error(json_ ? "" : "Run with --help for more information.\n");
            return status;
        }
    }

    void add_info() {
        CLI::App *info = app_.add_subcommand(
            "info", "What is in force and why: plugin, driver, devices, variables");
        info->add_option("SPEC", info_.spec, "a plugin to describe, in place of the one in force")
            ->option_text(" ");
        info->add_option("--limit", info_.limit,
                         "seconds that the plugin may take to load (default 30)")
            ->option_text("SECONDS")
            ->check(positive_number());
        json_flag(info, info_.json);
        info->footer("Loads the plugin, in a process of its own, but allocates nothing. A missing "
                     "driver is shown and is no "
                     "failure;\na plugin that does not load is one (exit status 1).");
    }

    void add_replay() {
        CLI::App *replay = app_.add_subcommand(
            "replay", "Run a recorded program's allocations through one or more plugins");
        CLI::Option *file =
            replay
                ->add_option("TRACE", replay_.trace,
                             "time,thread,stream,op,id,size lines or an event log,\n"
                             "plain or gzip; - for standard input")
                ->option_text(" ");
        CLI::Option *workload =
            replay->add_option("--generate", replay_.workload, "a built-in workload, see below")
                ->option_text("NAME");
        std::vector<std::string> names;
        for (const Workload &known : workloads()) {
            names.emplace_back(known.name);
        }
        expect_one_of(workload, names);
        file->excludes(workload);
        workload->excludes(file);
        replay->add_option("--seed", replay_.seed, "of the built-in workload (default 1)")
            ->option_text("N")
            ->check(whole_number())
            ->needs(workload);
        plugin_option(replay, replay_.plugins);
        CLI::Option *order =
            replay
                ->add_option("--order", order_,
                             "strict (default, for footprints): events in the file's order;\n"
                             "free (for cost): threads run on their own, and only a free of\n"
                             "another thread's block waits")
                ->option_text("strict|free");
        expect_one_of(order, {"strict", "free"});
        replay->add_flag("--touch", replay_.touch,
                         "write to each block, and check it before its free, on the streams\n"
                         "concerned: finds memory that is handed over too early");
        replay->add_flag("--warm", replay_.warm,
                         "play the trace once before, so that the plugin has its memory already;\n"
                         "the times and the driver's calls of the second half are the second "
                         "time's");
        replay
            ->add_option("--limit", replay_.limit,
                         "seconds (default 120) after which a plugin's process is stopped, if no\n"
                         "event came to its end and it used no processor time meanwhile")
            ->option_text("SECONDS")
            ->check(positive_number());
        json_flag(replay, replay_.json);
        replay->footer(
            workload_help() +
            "\nns/event is the time inside emm's calls alone. 'peak reserved' is what "
            "the plugin had taken\nfrom the driver, 'peak live' what the trace had allocated "
            "at once, 'ratio' the one by the other\n(none if an allocation failed), "
            "'leaked' what was not given back after the context was retired,\n'2nd "
            "half' the driver's calls in the trace's second half, 'early hand-overs' "
            "blocks that\nwere given out again while work of their previous owner could still "
            "use them.");
        replay_command_ = replay;
    }

    void add_bench() {
        CLI::App *bench =
            app_.add_subcommand("bench", "What an allocation costs, side by side with references");
        plugin_option(bench, bench_.plugins);
        bench->add_option("--case", bench_.cases, "cases to run (default all), see below")
            ->option_text("NAME,...")
            ->delimiter(',');
        bench->add_option("--threads", bench_.threads, "numbers of threads (default 1)")
            ->option_text("N,...")
            ->delimiter(',')
            ->check(whole_number(1, 1024));
        bench
            ->add_option("--size", sizes_,
                         "block sizes, for cases that do not draw their own: 256, 64KiB, 1MiB")
            ->option_text("BYTES,...")
            ->delimiter(',')
            ->check(CLI::Validator(size_problem, "", ""));
        json_flag(bench, bench_.json);
        bench->footer(case_help() +
                      "\nReferences in the same run: malloc of the C library, mimalloc if it is "
                      "installed, and on a\nreal GPU cuMemAlloc, cuMemAllocAsync and "
                      "cuMemHostAlloc. All take turns, and medians are shown.\n'ns/pair' is of "
                      "short stretches, without what interrupts a few of them; 'million pairs/s'\n"
                      "is of whole rounds, interruptions included.");
        bench_command_ = bench;
    }

    void add_events() {
        CLI::App *events = app_.add_subcommand(
            "events", "Complete the event log of a program that was killed, and sum it up");
        events->add_option("LOG", events_.log, "the file that EMM_EVENT_LOG named")
            ->option_text(" ")
            ->required();
        json_flag(events, events_.json);
        events->footer("What the program had recorded and not yet written lies beside the log, in "
                       "LOG.spool;\nit becomes rows, and that file goes. `emm replay LOG` does the "
                       "same first.");
        events_command_ = events;
    }

    void add_check() {
        CLI::App *check = app_.add_subcommand(
            "check", "Whether a plugin meets its requirements, each case in a process of its own");
        check->add_option("SPEC", check_.spec, "the plugin")->option_text(" ");
        check
            ->add_option(
                "--filter", check_.filters,
                "only cases with this in their name, or of this requirement; may be given\n"
                "several times")
            ->option_text("TEXT")
            ->take_all()
            ->allow_extra_args(false);
        check->add_option("--seed", check_.seed, "of what is random (default 1)")
            ->option_text("N")
            ->check(whole_number());
        check->add_option("--limit", check_.limit, "seconds that a case may take (default 30)")
            ->option_text("SECONDS")
            ->check(positive_number());
        check->add_option("--jobs", check_.jobs, "cases at a time (default: a processor each)")
            ->option_text("N")
            ->check(whole_number(1, 1024));
        check->add_flag("--list", check_.list, "name the cases and what they ask; run none");
        json_flag(check, check_.json);
        check->footer("Requirements (EMM-P-01 ...) are numbered in REQUIREMENTS.md, beside the "
                      "templates\n(`pkg-config --variable=templatedir emm`; in the sources: "
                      "plugins/). With EMM_DRIVER=sim,\nwhich needs no GPU, every case runs; on a "
                      "real driver those that only the simulated one\ncan judge are skipped by "
                      "name. Speed is not judged.");
        check_command_ = check;
    }

    void add_run() {
        CLI::App *run = app_.add_subcommand(
            "run", "Start any CUDA program with its memory on a plugin: no source, no rebuild");
        run->formatter(help_formatter_of_run());
        run->get_formatter()->column_width(34);
        run->add_option("--plugin", run_.plugin, "the plugin (default: EMM_PLUGIN)")
            ->option_text("SPEC");
        run->add_flag("--sync-free", run_.sync_free,
                      "a free waits for the work of its context, as the driver's does");
        run->add_flag("--zero", run_.zero, "memory is zero when it is handed out");
        run->add_option("--release", run_.release,
                        "when an allocation fails, have the caches of these modules (torch,\n"
                        "cupy) of a Python program give back, and try again")
            ->option_text("MODULE,...");
        run->add_option("--record", run_.record,
                        "write each allocation and free to FILE, as EMM_EVENT_LOG does;\n"
                        "%p in the name is the process id")
            ->option_text("FILE");
        run->add_option("--track", run_.track,
                        "keep who asked for each live allocation, as EMM_TRACK does: module or\n"
                        "stack, with :sample=1/N for one of N; told when memory runs out")
            ->option_text("SPEC");
        run->add_flag("--audit", run_.audit,
                      "also for a program that opens the driver by its absolute path");
        run->add_flag("--no-children", run_.no_children,
                      "programs that the program starts run without emm");
        run->add_flag("--print-env", run_.print_env,
                      "print the variables for a shell, and start nothing");
        run->footer(
            "  emm run --plugin pool:max=8GiB -- python train.py\n"
            "  eval \"$(emm run --plugin pool --print-env)\"\n\n"
            "LD_PRELOAD and LD_LIBRARY_PATH lead the program to emm's libcuda.so.1, which serves "
            "its\nmemory and passes all other calls on.\n\n"
            "Exit status: the program's; 1: the plugin does not load; 2: wrong usage; 126: the "
            "program\ncannot be run, or not on emm; 127: it is not there.");
        run_command_ = run;
    }

    // What comes after `emm run ... --` is the program's. Returns how many words are the tool's.
    int take_program(int argc, char **argv) {
        for (int i = 2; i < argc && std::strcmp(argv[1], "run") == 0; ++i) {
            if (std::strcmp(argv[i], "--") == 0) {
                run_.program.assign(argv + i + 1, argv + argc);
                return i;
            }
        }
        return argc;
    }

    static void json_flag(CLI::App *command, bool &flag) {
        command->add_flag("--json", flag, "print one JSON object and nothing else");
    }

    static void plugin_option(CLI::App *command, std::vector<std::string> &specs) {
        command
            ->add_option("--plugin", specs,
                         "a plugin, in a process of its own; may be given several times")
            ->option_text("SPEC")
            ->take_all()
            ->allow_extra_args(false); // what follows may be the trace
    }

    static std::string size_problem(std::string &text) {
        uint64_t size = 0;
        return emm_parse_size(text.c_str(), &size) && size > 0
                   ? ""
                   : "expected a size above 0, such as 256, 64KiB or 1MiB, found '" + text + "'";
    }

    void make_specs_absolute() {
        for (std::vector<std::string> *specs : {&replay_.plugins, &bench_.plugins}) {
            std::for_each(specs->begin(), specs->end(), make_paths_absolute);
        }
        make_paths_absolute(info_.spec);
        make_paths_absolute(check_.spec);
        if (run_.plugin) {
            make_paths_absolute(*run_.plugin);
        }
    }

    int dispatch() {
        make_specs_absolute();
        if (run_command_->parsed()) {
            return run_program(run_, write_signals_);
        }
        if (replay_command_->parsed()) {
            if (replay_.trace.empty() == replay_.workload.empty()) {
                throw usage("replay: expected a trace file or --generate NAME, found neither");
            }
            replay_.free_order = order_ == "free";
            return run_replay(replay_);
        }
        if (bench_command_->parsed()) {
            for (const std::string &text : sizes_) {
                emm_parse_size(text.c_str(), &bench_.sizes.emplace_back());
            }
            return run_bench(bench_);
        }
        if (events_command_->parsed()) {
            return run_events(events_);
        }
        if (check_command_->parsed()) {
            if (check_.spec.empty() && !check_.list) {
                throw usage("check: expected a SPEC, found none");
            }
            expect_one_plugin("check", check_.spec);
            return run_check(check_);
        }
        if (export_command_->parsed()) {
            return run_export(export_);
        }
        if (import_command_->parsed()) {
            return run_import(import_);
        }
        if (new_command_->parsed()) {
            return run_new(new_);
        }
        if (top_command_->parsed()) {
            return run_top(top_);
        }
        if (report_command_->parsed()) {
            return run_report(report_);
        }
        expect_one_plugin("info", info_.spec);
        return run_info(info_);
    }

    static void expect_one_plugin(const char *command, const std::string &spec) {
        if (is_list(spec)) {
            throw usage(
                fmt::format("{}: expected one plugin, found a list, {}", command, in_quotes(spec)));
        }
    }

    static Problem unexpected(emm_status code, std::string message) {
        return {.code = code, .stage = "run", .message = std::move(message)};
    }

    // A trace that cannot be read is wrong input; nothing has run.
    int tell(const Problem &problem) const {
        if (!json_ || !is_printed(to_json(problem))) {
            print_error(fmt::format("emm: {}\n", to_text(problem)));
        }
        return problem.stage == "usage" || problem.stage == "trace" ? wrong_usage : failed;
    }

    // Where standard output fails, standard error has the problem.
    static bool is_printed(const Json &json) {
        try {
            print_json(json);
            return true;
        } catch (const Failure &) {
            return false;
        }
    }

    WriteSignalsIgnored write_signals_;
    CLI::App app_;
    CLI::App *replay_command_ = nullptr, *bench_command_ = nullptr, *events_command_ = nullptr;
    CLI::App *check_command_ = nullptr, *run_command_ = nullptr;
    CLI::App *export_command_ = nullptr, *import_command_ = nullptr, *new_command_ = nullptr;
    CLI::App *top_command_ = nullptr, *report_command_ = nullptr;
    InfoOptions info_;
    ReplayOptions replay_;
    BenchOptions bench_;
    EventsOptions events_;
    CheckOptions check_;
    RunOptions run_;
    ExportOptions export_;
    ImportOptions import_;
    NewOptions new_;
    TopOptions top_;
    ReportOptions report_;
    std::string order_ = "strict";
    std::string manual_;
    std::vector<std::string> sizes_;
    bool json_ = false;
};

} // namespace

int run_command_line(int argc, char **argv) {
    return CommandLine().run(argc, argv);
}

} // namespace emm::tool
