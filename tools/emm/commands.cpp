// The options of each command, and their texts in --help.
#include "commands.h"

#include "option.h"
#include "spec.h"
#include "top/view.h"
#include "usage.h"
#include "workload/workload.h"

#include <emm/plugin_helpers.h>

#include <CLI/CLI.hpp>
#include <algorithm>

namespace emm::tool {
namespace {

void output_option(CLI::App *command, std::string &output) {
    option(command, "-o,--output FILE", output,
           "the file to write, once it is whole (default: standard output)");
}

void json_option(CLI::App *command, bool &json) {
    command->add_flag("--json", json,
                      "print one JSON object about the file, which -o names, and nothing else");
}

Command info_command(CLI::App &app) {
    const auto options = std::make_shared<InfoOptions>();
    CLI::App *info = app.add_subcommand(
        "info", "Show the plugin, driver, devices and variables in force, and why");
    option(info, "SPEC", options->spec, "a plugin to describe, in place of the one in force");
    option(info, "--limit SECONDS", options->limit,
           "seconds that the plugin may take to load (default 30)")
        ->check(positive_number());
    json_flag(info, options->json);
    info->footer(
        "Loads the plugin in a process of its own, and allocates nothing. A missing driver is "
        "shown, and is a failure\n(exit status 1) only if EMM_DRIVER names it. A plugin that does "
        "not load is a failure (exit status 1).");
    return {info, [options] {
                make_paths_absolute(options->spec);
                return run_info(*options);
            }};
}

Command replay_command(CLI::App &app) {
    const auto options = std::make_shared<ReplayOptions>();
    const auto order = std::make_shared<std::string>("strict");
    CLI::App *replay = app.add_subcommand(
        "replay", "Run a recorded program's allocations through one or more plugins");
    CLI::Option *file = option(replay, "TRACE", options->trace,
                               "time,thread,stream,op,id,size lines or an event log,\n"
                               "plain or gzip; - for standard input");
    CLI::Option *workload =
        option(replay, "--generate NAME", options->workload, "a built-in workload, see below");
    std::vector<std::string> names;
    for (const Workload &known : workloads()) {
        names.emplace_back(known.name);
    }
    expect_one_of(workload, names);
    file->excludes(workload);
    workload->excludes(file);
    option(replay, "--seed N", options->seed, "the seed of the built-in workload (default 1)")
        ->check(whole_number())
        ->needs(workload);
    plugin_option(replay, options->plugins);
    expect_one_of(option(replay, "--order strict|free", *order,
                         "strict (default, for footprints): events in the file's order;\n"
                         "free (for cost): threads run on their own, and only a free of\n"
                         "another thread's block waits"),
                  {"strict", "free"});
    replay->add_flag("--touch", options->touch,
                     "write to each block and check it before its free, on its streams;\nthis "
                     "finds memory that is handed over too early");
    replay->add_flag("--warm", options->warm,
                     "play the trace twice, so that the plugin has its memory already; the\ntimes, "
                     "and the driver calls of the second half, are of the second time");
    option(replay, "--pace", options->pace,
           "keep the recording's times between calls, multiplied by FACTOR\n(default 1), with work "
           "on the streams meanwhile; the result has the\nshare of the time that emm's calls take")
        ->option_text("[FACTOR]")
        ->expected(0, 1)
        ->default_str("1")
        ->check(positive_number());
    option(replay, "--limit SECONDS", options->limit,
           "stop a plugin's process after so many seconds (default 120) in which\nno event has "
           "ended and no processor time was used")
        ->check(positive_number());
    json_flag(replay, options->json);
    replay->footer(
        workload_help() +
        "\nns/event            time inside emm's calls\npeak reserved       the most memory that "
        "the plugin had from the driver\npeak live           the most memory that the trace had "
        "allocated at once\nratio               peak reserved / peak live; none if an allocation "
        "failed\nleaked              memory that was not returned when the context was "
        "retired\n2nd half            driver calls in the trace's second half\nearly hand-overs    "
        "blocks given out while work of their previous owner could still use them\nshare of time   "
        "    with --pace: the share of the whole time that emm's calls took");
    return {replay, [options, order] {
                if (options->trace.empty() == options->workload.empty()) {
                    throw usage("replay: give a trace file or --generate NAME");
                }
                std::for_each(options->plugins.begin(), options->plugins.end(),
                              make_paths_absolute);
                options->free_order = *order == "free";
                if (options->free_order && options->pace > 0) {
                    throw usage("replay: expected --order strict with --pace, found free");
                }
                return run_replay(*options);
            }};
}

std::string size_problem(std::string &text) {
    uint64_t size = 0;
    return emm_parse_size(text.c_str(), &size) && size > 0
               ? ""
               : "expected a size above 0, such as 256, 64KiB or 1MiB, found '" + text + "'";
}

Command bench_command(CLI::App &app) {
    const auto options = std::make_shared<BenchOptions>();
    const auto sizes = std::make_shared<std::vector<std::string>>();
    CLI::App *bench =
        app.add_subcommand("bench", "Measure what an allocation costs, beside references");
    plugin_option(bench, options->plugins);
    option(bench, "--case NAME,...", options->cases, "cases to run (default all), see below")
        ->delimiter(',');
    option(bench, "--threads N,...", options->threads, "numbers of threads (default 1)")
        ->delimiter(',')
        ->check(whole_number(1, 1024));
    option(bench, "--size BYTES,...", *sizes,
           "block sizes, for cases that do not draw their own: 256, 64KiB, 1MiB")
        ->delimiter(',')
        ->check(CLI::Validator(size_problem, "", ""));
    json_flag(bench, options->json);
    bench->footer(case_help() +
                  "\nReferences in the same run: malloc of the C library, mimalloc if it is "
                  "installed, and on a\nreal GPU cuMemAlloc, cuMemAllocAsync and "
                  "cuMemHostAlloc. All take turns, and medians are shown.\n'ns/pair' is of "
                  "short stretches, without what interrupts a few of them; 'million pairs/s'\n"
                  "is of whole rounds, interruptions included.");
    return {bench, [options, sizes] {
                std::for_each(options->plugins.begin(), options->plugins.end(),
                              make_paths_absolute);
                for (const std::string &text : *sizes) {
                    emm_parse_size(text.c_str(), &options->sizes.emplace_back());
                }
                return run_bench(*options);
            }};
}

Command events_command(CLI::App &app) {
    const auto options = std::make_shared<EventsOptions>();
    CLI::App *events = app.add_subcommand(
        "events", "Complete the event log of a program that was killed, and sum it up");
    option(events, "LOG", options->log, "the file that EMM_EVENT_LOG named")->required();
    json_flag(events, options->json);
    events->footer(
        "Records that the program had not yet written are in LOG.spool, beside the log. They "
        "become\nrows of the log, and LOG.spool is deleted. `emm replay LOG` does the same first.");
    return {events, [options] { return run_events(*options); }};
}

Command check_command(CLI::App &app) {
    const auto options = std::make_shared<CheckOptions>();
    CLI::App *check = app.add_subcommand(
        "check", "Test whether a plugin meets its requirements; each case has its own process");
    option(check, "SPEC", options->spec, "the plugin");
    option(
        check, "--filter TEXT", options->filters,
        "only cases with TEXT in their name, or of this requirement; may be given\nseveral times")
        ->take_all()
        ->allow_extra_args(false);
    option(check, "--seed N", options->seed, "the seed of random tests (default 1)")
        ->check(whole_number());
    option(check, "--limit SECONDS", options->limit, "seconds that a case may take (default 30)")
        ->check(positive_number());
    option(check, "--jobs N", options->jobs, "cases at a time (default: one for each processor)")
        ->check(whole_number(1, 1024));
    check->add_flag("--list", options->list, "list the cases and what they check; run none");
    json_flag(check, options->json);
    check->footer("Requirements (EMM-P-01 ...) are numbered in REQUIREMENTS.md, beside the "
                  "templates\n(`pkg-config --variable=templatedir emm`; in the sources: plugins/). "
                  "With EMM_DRIVER=sim,\nwhich needs no GPU, every case runs; on a real driver, "
                  "cases that need the simulated\none are skipped by name. Speed is not judged.");
    return {check, [options] {
                if (options->spec.empty() && !options->list) {
                    throw usage("check: give a SPEC");
                }
                expect_one_plugin("check", options->spec);
                make_paths_absolute(options->spec);
                return run_check(*options);
            }};
}

Command run_command(CLI::App &app, const std::vector<std::string> &program,
                    WriteSignalsIgnored &signals) {
    const auto options = std::make_shared<RunOptions>();
    CLI::App *run = app.add_subcommand(
        "run", "Start any CUDA program on a plugin, without a change to its source or binary");
    run->formatter(help_formatter_of_run());
    run->get_formatter()->column_width(34);
    option(run, "--plugin SPEC", options->plugin, "the plugin (default: EMM_PLUGIN)");
    option(run, "--limit SIZE", options->limit,
           "the most device memory, of all kinds, that the program may have on each\ndevice; "
           "GPU-UUID=SIZE;*=SIZE: on one device, and on the others");
    option(run, "--shared NAME", options->shared,
           "share the limit with all processes that are started with this NAME");
    run->add_flag("--sync-free", options->sync_free,
                  "a free waits for all work of its context, as cuMemFree does");
    run->add_flag("--zero", options->zero, "memory is zero when it is handed out");
    option(run, "--release MODULE,...", options->release,
           "when an allocation fails, empty the caches of these Python modules\n(torch, cupy) and "
           "try again");
    option(run, "--record FILE", options->record,
           "write each allocation and free to FILE, as EMM_EVENT_LOG does;\n"
           "%p in the name is the process id");
    option(run, "--track SPEC", options->track,
           "record who asked for each live allocation, as EMM_TRACK does: module or\nstack; "
           ":sample=1/N records one of N. The report shows it when memory\nruns out");
    run->add_flag("--pausable", options->pausable,
                  "let emm pause take the program's memory, and emm resume bring it back");
    run->add_flag("--audit", options->audit,
                  "also serve a program that opens the driver by its absolute path");
    run->add_flag("--no-children", options->no_children,
                  "child processes of the program run without emm");
    run->add_flag("--print-env", options->print_env,
                  "print the variables for a shell, and start nothing");
    run->footer(
        "  emm run --plugin pool --limit 8GiB -- python train.py\n  eval \"$(emm run --plugin pool "
        "--print-env)\"\n\nLD_PRELOAD and LD_LIBRARY_PATH lead the program to emm's libcuda.so.1. "
        "This library serves\nthe memory, and passes all other calls to the driver.\n\nExit "
        "status: the program's; 1: the plugin does not load; 2: wrong usage; 126: the "
        "program\ncannot be run, or not on emm; 127: there is no such program.");
    return {run, [options, &program, &signals] {
                options->program = program;
                if (options->plugin) {
                    make_paths_absolute(*options->plugin);
                }
                return run_program(*options, signals);
            }};
}

Command export_command(CLI::App &app) {
    const auto options = std::make_shared<ExportOptions>();
    CLI::App *command =
        app.add_subcommand("export", "Write an event log in a format that other tools show");
    option(command, "LOG", options->log,
           "the file that EMM_EVENT_LOG or emm run --record named;\n"
           "- for standard input");
    option(command, "--pid PID", options->pid,
           "export the live memory of a process that runs with EMM_TRACK or\nemm run --track, "
           "instead of a log; only with --to pprof")
        ->check(whole_number(1));
    expect_one_of(option(command, "--to FORMAT", options->to,
                         "torch-snapshot: a memory snapshot of PyTorch, for\n"
                         "pytorch.org/memory_viz and python -m torch.cuda._memory_viz;\n"
                         "chrome-trace: JSON for ui.perfetto.dev;\n"
                         "pprof: a heap profile for go tool pprof and speedscope")
                      ->required(),
                  {"torch-snapshot", "chrome-trace", "pprof"});
    output_option(command, options->output);
    option(command, "--last N", options->last,
           "only the last N events of each device (default: all); viewers are\nslow beyond 100,000")
        ->check(whole_number(1));
    json_option(command, options->json);
    command->footer(
        "  emm run --record log.csv -- python train.py\n  emm export log.csv --to torch-snapshot "
        "-o snapshot.pickle\n  python -m torch.cuda._memory_viz trace_plot snapshot.pickle -o "
        "plot.html\n  emm export log.csv --to chrome-trace -o trace.json\n  emm export log.csv "
        "--to pprof -o heap.pb.gz\n  emm export --pid 7810 --to pprof -o live.pb.gz\n\nA snapshot "
        "has only device memory. A log does not have the memory that a plugin had reserved,\nso "
        "each block is a segment of its own. A profile has the callers of all allocations, of "
        "those\nthat are live at the end, and of those that were live when a device had the most.");
    return {command, [options] { return run_export(*options); }};
}

Command import_command(CLI::App &app) {
    const auto options = std::make_shared<ImportOptions>();
    CLI::App *command = app.add_subcommand(
        "import", "Make a trace for emm replay from the recording of another program");
    option(command, "FILE", options->file, "plain or gzip; - for standard input")->required();
    expect_one_of(option(command, "--from FORMAT", options->from,
                         "torch-snapshot: torch.cuda.memory._dump_snapshot();\nrmm: the CSV of "
                         "RMM's logging_resource_adaptor;\nkineto: the JSON of torch.profiler with "
                         "profile_memory=True\n(default: found by the first bytes of the file)"),
                  {"torch-snapshot", "rmm", "kineto"});
    expect_one_of(option(command, "--to FORMAT", options->to,
                         "trace: for emm replay, the default;\n"
                         "event-log: with addresses, failures, and the stacks of a snapshot"),
                  {"trace", "event-log"});
    output_option(command, options->output);
    option(command, "--device N", options->device,
           "the device, if a snapshot or Kineto trace has several")
        ->check(whole_number());
    json_option(command, options->json);
    command->footer(
        "  emm import snapshot.pickle -o trace.csv\n  emm replay trace.csv --plugin pool\n  emm "
        "import rmm_log.csv | emm replay - --plugin pool\n\nA recording may lack its beginning: a "
        "snapshot holds only the latest events. Blocks that were\nlive before are allocated at the "
        "start of the trace; their number is printed.");
    return {command, [options] { return run_import(*options); }};
}

Command new_command(CLI::App &app) {
    const auto options = std::make_shared<NewOptions>();
    CLI::App *command =
        app.add_subcommand("new", "Write a plugin project, ready to build, into a new folder");
    option(command, "NAME", options->name, "the plugin's name, by which EMM_PLUGIN finds it")
        ->required();
    CLI::Option *cpp = command->add_flag("--cpp", options->cpp, "in C++17 (default)");
    CLI::Option *c = command->add_flag("--c", options->c, "in C11");
    CLI::Option *layer =
        command->add_flag("--layer", options->layer, "a layer over plugins instead, in C11");
    CLI::Option *meson = command->add_flag("--meson", options->meson, "built by Meson (default)");
    CLI::Option *cmake = command->add_flag("--cmake", options->cmake, "built by CMake");
    c->excludes(cpp);
    cmake->excludes(meson);
    layer->excludes(cpp)->excludes(cmake);
    json_flag(command, options->json);
    command->footer(
        "  emm new mine --cpp --meson && cd mine\n  meson setup build && meson compile -C build\n  "
        "EMM_DRIVER=sim emm check $PWD/build/libemm-mine.so\n  "
        "EMM_PLUGIN=$PWD/build/libemm-mine.so PROGRAM\n\nMeson finds emm with pkg-config "
        "(PKG_CONFIG_PATH), CMake with find_package (CMAKE_PREFIX_PATH).\nThe new plugin serves "
        "memory from cuMemAlloc; change it as you like.");
    return {command, [options] { return run_new(*options); }};
}

Command report_command(CLI::App &app) {
    const auto options = std::make_shared<ReportOptions>();
    CLI::App *command = app.add_subcommand(
        "report", "Write an HTML page that shows who held memory, and what made the peak");
    option(command, "LOG", options->input,
           "an event log (EMM_EVENT_LOG, emm run --record), a trace or a\n"
           "snapshot of PyTorch, plain or gzip; - for standard input")
        ->required();
    option(command, "--device N", options->device, "the device, if a snapshot has several")
        ->check(whole_number());
    option(command, "-o,--output FILE", options->output,
           "the page to write, once it is whole (default: report.html,\n"
           "with --json none); - for standard output");
    CLI::Option *plugin =
        option(command, "--plugin SPEC", options->plugin,
               "replay the events through a plugin, on the simulated driver unless\nEMM_DRIVER is "
               "set; shows reserved memory, driver calls and addresses");
    CLI::Option *compare = option(command, "--compare SPEC SPEC...", options->compare,
                                  "the same for two to six plugins, side by side; comes after LOG")
                               ->expected(2, 6)
                               ->excludes(plugin);
    CLI::Option *step = option(command, "--step N", options->step,
                               "only the part of a trace from mark N to the next mark")
                            ->check(whole_number(0, INT64_MAX))
                            ->excludes(plugin, compare);
    option(command, "--from SECONDS", options->from,
           "the part after this time, with the memory that was live then")
        ->check(number_from(0))
        ->excludes(plugin, compare, step);
    option(command, "--to SECONDS", options->to, "the part before this time")
        ->check(number_from(0))
        ->excludes(plugin, compare, step);
    option(command, "--against LOG", options->against,
           "the recording of an earlier run; shows the changes since then, by caller");
    option(command, "--limit SECONDS", options->limit,
           "seconds (default 120) that a plugin's process may give no sign of life")
        ->check(positive_number());
    command->add_flag("--json", options->json,
                      "print the figures of the page as one JSON object, and nothing else");
    command->footer(
        "  emm run --plugin pool --record log.csv -- python train.py\n  emm report log.csv -o "
        "report.html\n  emm report log.csv --plugin pool:max=8GiB\n  emm report trace.csv.gz "
        "--compare pool async -o compared.html\n  emm report trace.csv.gz --step 12\n  emm report "
        "snapshot.pickle --against yesterday.pickle\n\nThe page needs no other file and no "
        "network. A log has neither the memory that the plugin had\nreserved nor its driver calls; "
        "a trace has neither callers nor addresses. A replay shows what\na plugin would have done "
        "with the same events.");
    return {command, [options] { return run_report(*options); }};
}

} // namespace

std::vector<Command> make_commands(CLI::App &app, const std::vector<std::string> &program,
                                   WriteSignalsIgnored &signals) {
    std::vector<Command> commands = {
        info_command(app),   replay_command(app), bench_command(app),
        events_command(app), check_command(app),  run_command(app, program, signals),
        export_command(app), import_command(app), new_command(app)};
    for (const Command &command : process_commands(app)) {
        commands.push_back(command);
    }
    commands.push_back(report_command(app));
    return commands;
}

} // namespace emm::tool
