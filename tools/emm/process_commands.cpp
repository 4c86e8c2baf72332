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
        "--json", options->json, "print one JSON object, or N with --count N, and nothing else");
    CLI::Option *prometheus = command->add_flag("--prometheus", options->prometheus,
                                                "print Prometheus's text exposition format");
    option(command, "-o,--output FILE", options->output,
           "write the --prometheus text to this file; with --interval repeatedly,\nand each time "
           "the whole file")
        ->needs(prometheus);
    CLI::Option *dump = option(command, "--dump PID", options->dump,
                               "let a process write its memory report to its EMM_LOG, and print it")
                            ->check(whole_number(1, most_processes));
    option(command, "--interval SECONDS", options->interval,
           "seconds between two tables (default 1)")
        ->check(number_from(0.05, 86400));
    CLI::Option *count =
        option(command, "--count N", options->count, "end after N tables, or JSON objects")
            ->check(whole_number(1));
    option(command, "--sort COLUMN", options->sort,
           "pid, program, plugin, device, live, cached, reserved (default), peak, spilled,\n"
           "host, failures, limit, free, group, driver, rate, oldest or waiting")
        ->check(CLI::Validator(column_problem, "", ""));
    json->excludes(prometheus);
    prometheus->excludes(dump)->excludes(count);
    dump->excludes(count);
    command->footer(
        "On a terminal the table is refreshed until q is pressed; s sorts by the next column.\n"
        "In a pipe, or on a terminal without escape codes, one table is printed after half a\n"
        "second; with --interval or --count, several.\n\n"
        "LIVE      memory that the program has asked for\n"
        "CACHED    memory that the plugin keeps for later requests\n"
        "WAITING   freed memory that the device may still use\n"
        "RESERVED  memory that the plugin has from the driver\n"
        "PEAK      the highest RESERVED\n"
        "SPILLED   the part of RESERVED that is host memory\n"
        "HOST      pinned memory that a paused pool has instead\n"
        "FAILED    the number of failed requests\n"
        "LIMIT     the limit of the device, if it has one (emm run --limit)\n"
        "FREE      the memory that the limit leaves\n"
        "GROUP     the name under which processes share the limit\n"
        "DRIVER    memory that the program took from the driver itself\n"
        "ALLOC/S   allocations in a second\n"
        "OLDEST    large old allocations, of a program that runs with --track\n\n"
        "NO_COLOR is honoured. A program that runs with EMM_TOP=off is not shown.");
    return {command, [options] { return run_top(*options); }};
}

Command limit_command(CLI::App &app) {
    const auto options = std::make_shared<LimitOptions>();
    CLI::App *command = app.add_subcommand(
        "limit", "Change how much device memory a running process or group may have");
    option(command, "PID|NAME", options->whose,
           "a process that was started with --limit, or the NAME of --shared, under\nwhich "
           "processes share a limit")
        ->required();
    option(command, "SIZE", options->size,
           "the limit on each device; GPU-UUID=SIZE;*=SIZE: on one, and on the others")
        ->required();
    json_flag(command, options->json);
    command->footer(
        "  emm limit 7810 6GiB\n  emm limit training 12GiB\n\nA higher limit applies at once. If "
        "the new limit is below what the programs have, they return\nunused memory, and requests "
        "fail until they fit. Live allocations stay.");
    return {command, [options] { return run_limit(*options); }};
}

Command set_command(CLI::App &app) {
    const auto options = std::make_shared<SetOptions>();
    CLI::App *command =
        app.add_subcommand("set", "Change an option of the plugin in a running process");
    option(command, "PID", options->pid, "a process that uses emm")
        ->required()
        ->check(whole_number(1, most_processes));
    option(command, "SETTING", options->words,
           "[NAME] KEY=VALUE: the name of a pool (default: each CUDA context's own pool),\nand the "
           "option; KEY= sets the default")
        ->required()
        ->expected(1, 2);
    json_flag(command, options->json);
    command->footer(
        "  emm set 7810 max=6GiB\n  emm set 7810 kv-cache release_threshold=1GiB\n\nemm info shows "
        "which options of a plugin can change; those of pool are max, slack "
        "and\nrelease_threshold. The new value applies to later requests. A lower max returns idle "
        "memory,\nand the pool cannot grow until it fits; live memory stays. If the plugin refuses "
        "a value,\nnothing changes.");
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
        app, "pause", "Put a program to sleep: return its device memory, keep its addresses",
        *options);
    command->add_flag("--discard", options->discard,
                      "copy nothing: after emm resume the content is undefined");
    option(command, "--limit SECONDS", options->limit,
           "seconds that work on the device may take to end (default 10)")
        ->check(number_from(0.001, 86400));
    command->footer("  emm run --pausable --plugin pool -- python serve.py\n  emm pause 7810\n  "
                    "emm resume 7810\n\nCalls that put work on a device, or take memory, wait for "
                    "the resume. The pause first waits for\nthe work on the device; if that does "
                    "not end in time, nothing changes. Host memory keeps the\ncontent, also of "
                    "memory from cuMemCreate. Memory that other processes have open stays.");
    return {command, [options] { return run_pause(*options); }};
}

Command resume_command(CLI::App &app) {
    const auto options = std::make_shared<PauseOptions>();
    CLI::App *command =
        outside_command(app, "resume", "Wake a program that emm pause has put to sleep", *options);
    command->add_flag("--keep-copy", options->keep_copy,
                      "keep the copy's host memory, so that the next emm pause is quick");
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
