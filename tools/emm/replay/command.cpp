#include "command.h"

#include "replay/replay.h"
#include "spec.h"
#include "usage.h"
#include "workload/workload.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace emm::tool {

Command replay_command(CLI::App &app) {
    const auto options = std::make_shared<ReplayOptions>();
    const auto order = std::make_shared<std::string>("strict");
    CLI::App *replay = app.add_subcommand(
        "replay", "Run a recorded program's allocations through one or more plugins");
    CLI::Option *file = replay
                            ->add_option("TRACE", options->trace,
                                         "time,thread,stream,op,id,size lines or an event log,\n"
                                         "plain or gzip; - for standard input")
                            ->option_text(" ");
    CLI::Option *workload =
        replay->add_option("--generate", options->workload, "a built-in workload, see below")
            ->option_text("NAME");
    std::vector<std::string> names;
    for (const Workload &known : workloads()) {
        names.emplace_back(known.name);
    }
    expect_one_of(workload, names);
    file->excludes(workload);
    workload->excludes(file);
    replay->add_option("--seed", options->seed, "of the built-in workload (default 1)")
        ->option_text("N")
        ->check(whole_number())
        ->needs(workload);
    plugin_option(replay, options->plugins);
    CLI::Option *way =
        replay
            ->add_option("--order", *order,
                         "strict (default, for footprints): events in the file's order;\n"
                         "free (for cost): threads run on their own, and only a free of\n"
                         "another thread's block waits")
            ->option_text("strict|free");
    expect_one_of(way, {"strict", "free"});
    replay->add_flag("--touch", options->touch,
                     "write to each block, and check it before its free, on the streams\n"
                     "concerned: finds memory that is handed over too early");
    replay->add_flag("--warm", options->warm,
                     "play the trace once before, so that the plugin has its memory already;\n"
                     "the times and the driver's calls of the second half are the second "
                     "time's");
    replay
        ->add_option("--pace", options->pace,
                     "keep the recording's times between calls, times FACTOR (default 1),\n"
                     "with work on the streams meanwhile; tells the share of the time that\n"
                     "emm's calls take")
        ->option_text("[FACTOR]")
        ->expected(0, 1)
        ->default_str("1")
        ->check(positive_number());
    replay
        ->add_option("--limit", options->limit,
                     "seconds (default 120) after which a plugin's process is stopped, if no\n"
                     "event came to its end and it used no processor time meanwhile")
        ->option_text("SECONDS")
        ->check(positive_number());
    json_flag(replay, options->json);
    replay->footer(
        workload_help() +
        "\nns/event is the time inside emm's calls alone. 'peak reserved' is what "
        "the plugin had taken\nfrom the driver, 'peak live' what the trace had allocated "
        "at once, 'ratio' the one by the other\n(none if an allocation failed), "
        "'leaked' what was not given back after the context was retired,\n'2nd "
        "half' the driver's calls in the trace's second half, 'early hand-overs' "
        "blocks that\nwere given out again while work of their previous owner could still "
        "use them, 'share of\ntime' with --pace what emm's calls take of the time from the first "
        "event to the last.");
    return {replay, [options, order] {
                if (options->trace.empty() == options->workload.empty()) {
                    throw usage("replay: expected a trace file or --generate NAME, found neither");
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

} // namespace emm::tool
