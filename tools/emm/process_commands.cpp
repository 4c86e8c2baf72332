// The options of the commands about running processes.
#include "commands.h"
#include "option.h"
#include "top/view.h"
#include "usage.h"

namespace emm::tool {
namespace {

constexpr uint64_t most_processes = 1 << 22; // PID_MAX_LIMIT of Linux

std::string column_problem(std::string &text) {
    top::Column column;
    return top::find_column(text, column)
               ? ""
               : "expected " + top::column_names() + ", found '" + text + "'";
}

Command top_command(CLI::App &app) {
    const auto options = std::make_shared<TopOptions>();
    CLI::App *command =
        app.add_subcommand("top", "Show what each process of yours that uses emm holds, live");
    CLI::Option *json = command->add_flag(
        "--json", options->json, "print one JSON object, or --count N so many, and nothing else");
    CLI::Option *prometheus = command->add_flag("--prometheus", options->prometheus,
                                                "print Prometheus's text exposition format");
    option(command, "-o,--output FILE", options->output,
           "the file that --prometheus writes in place of printing; with --interval\n"
           "again and again, each time as a whole")
        ->needs(prometheus);
    CLI::Option *dump =
        option(command, "--dump PID", options->dump,
               "have a process write its memory report where its EMM_LOG writes, and\n"
               "print it")
            ->check(whole_number(1, most_processes));
    option(command, "--interval SECONDS", options->interval,
           "seconds between two tables (default 1)")
        ->check(number_from(0.05, 86400));
    CLI::Option *count =
        option(command, "--count N", options->count, "end after N tables, or JSON objects")
            ->check(whole_number(1));
    option(command, "--sort COLUMN", options->sort,
           "pid, program, plugin, device, live, cached, reserved (default), peak, spilled,\n"
           "host, failures, limit, free, group, driver, rate or oldest")
        ->check(CLI::Validator(column_problem, "", ""));
    json->excludes(prometheus);
    prometheus->excludes(dump)->excludes(count);
    dump->excludes(count);
    command->footer(
        "On a terminal the table is refreshed until q is pressed; s sorts by the next column. In "
        "a\n"
        "pipe, or on a terminal that knows no escape codes, one table comes after half a second;\n"
        "with --interval or --count, several.\n\n"
        "LIVE is what the program has asked for, CACHED what the plugin keeps for later, RESERVED\n"
        "what it has from the driver, PEAK the highest RESERVED, FAILED how many requests failed. "
        "Where\n"
        "the device has a bound, LIMIT is that, FREE what it leaves, GROUP the name that shares "
        "it,\n"
        "DRIVER what the program took from the driver itself.\n"
        "NO_COLOR is honoured. A program that runs with EMM_TOP=off is not shown.");
    return {command, [options] { return run_top(*options); }};
}

Command limit_command(CLI::App &app) {
    const auto options = std::make_shared<LimitOptions>();
    CLI::App *command = app.add_subcommand(
        "limit", "Change how much device memory a running process or group may have");
    option(command, "PID|NAME", options->whose,
           "a process that was started with --limit, or all that share one by\n--shared NAME")
        ->required();
    option(command, "SIZE", options->size,
           "of each device; GPU-UUID=SIZE;*=SIZE: of one, and of the others")
        ->required();
    json_flag(command, options->json);
    command->footer("  emm limit 7810 6GiB\n"
                    "  emm limit training 12GiB\n\n"
                    "More holds at once. If there is less than the programs have, they give back "
                    "what no\nallocation uses, and get no more until they fit; what is live stays "
                    "theirs.");
    return {command, [options] { return run_limit(*options); }};
}

Command set_command(CLI::App &app) {
    const auto options = std::make_shared<SetOptions>();
    CLI::App *command =
        app.add_subcommand("set", "Change an option of the plugin in a process that runs");
    option(command, "PID", options->pid, "a process that uses emm")
        ->required()
        ->check(whole_number(1, most_processes));
    option(command, "SETTING", options->words,
           "[NAME] KEY=VALUE: the name of a pool, or none: each CUDA context's own; and the\n"
           "option. Without a VALUE it gets its default")
        ->required()
        ->expected(1, 2);
    json_flag(command, options->json);
    command->footer("  emm set 7810 max=6GiB\n"
                    "  emm set 7810 kv-cache release_threshold=1GiB\n\n"
                    "emm info says which options of a plugin change: of pool max, slack and\n"
                    "release_threshold. The new value is for the requests that follow. A lower max "
                    "gives back\nwhat is idle, and refuses growth until it fits; what is live "
                    "stays. A value that the\nplugin refuses changes nothing.");
    return {command, [options] { return run_set(*options); }};
}

// The options that pause and resume share.
CLI::App *outside_command(CLI::App &app, const char *name, const char *help,
                          PauseOptions &options) {
    CLI::App *command = app.add_subcommand(name, help);
    option(command, "PID", options.pid, "a process that was started by emm run --pausable")
        ->required()
        ->check(whole_number(1, most_processes));
    option(command, "NAME", options.pool, "a named pool (default: all memory of the process)");
    json_flag(command, options.json);
    return command;
}

Command pause_command(CLI::App &app) {
    const auto options = std::make_shared<PauseOptions>();
    CLI::App *command = outside_command(
        app, "pause", "Put a program to sleep: its device memory goes back, its addresses stay",
        *options);
    command->add_flag("--discard", options->discard,
                      "copy nothing: after emm resume the content is undefined");
    option(command, "--limit SECONDS", options->limit,
           "seconds that work on the device may take to end (default 10)")
        ->check(number_from(0.001, 86400));
    command->footer(
        "  emm run --pausable --plugin pool -- python serve.py\n"
        "  emm pause 7810\n"
        "  emm resume 7810\n\n"
        "Calls that put work on a device, or take memory, wait until all is resumed. What is on "
        "the\ndevice ends first; if it does not in time, nothing has changed. The content is kept "
        "in host\nmemory, also that of cuMemCreate. What other processes have open stays.");
    return {command, [options] { return run_pause(*options); }};
}

Command resume_command(CLI::App &app) {
    const auto options = std::make_shared<PauseOptions>();
    CLI::App *command =
        outside_command(app, "resume", "Wake a program that emm pause has put to sleep", *options);
    command->footer("  emm resume 7810\n\nIf the device has too little memory, the program stays "
                    "asleep; try again later.\nThe pools that were resumed before stay resumed.");
    return {command, [options] { return run_resume(*options); }};
}

} // namespace

std::vector<Command> process_commands(CLI::App &app) {
    return {top_command(app), limit_command(app), set_command(app), pause_command(app),
            resume_command(app)};
}

} // namespace emm::tool
