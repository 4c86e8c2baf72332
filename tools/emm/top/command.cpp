#include "command.h"

#include "top/top.h"
#include "top/view.h"
#include "usage.h"

#include <CLI/CLI.hpp>

namespace emm::tool {
namespace {

constexpr uint64_t most_processes = 1 << 22; // PID_MAX_LIMIT of Linux

std::string column_problem(std::string &text) {
    top::Column column;
    return top::find_column(text, column)
               ? ""
               : "expected pid, program, plugin, device, live, cached, reserved, peak, rate or "
                 "oldest, found '" +
                     text + "'";
}

} // namespace

Command top_command(CLI::App &app) {
    const auto options = std::make_shared<TopOptions>();
    CLI::App *command =
        app.add_subcommand("top", "What each process of yours that uses emm holds, live");
    CLI::Option *json = command->add_flag(
        "--json", options->json, "print one JSON object, or --count N so many, and nothing else");
    CLI::Option *prometheus = command->add_flag("--prometheus", options->prometheus,
                                                "print Prometheus's text exposition format");
    command
        ->add_option("-o,--output", options->output,
                     "the file that --prometheus writes in place of printing; with --interval\n"
                     "again and again, each time as a whole")
        ->option_text("FILE")
        ->needs(prometheus);
    CLI::Option *dump =
        command
            ->add_option("--dump", options->dump,
                         "have a process write its memory report where its EMM_LOG writes, and\n"
                         "print it")
            ->option_text("PID")
            ->check(whole_number(1, most_processes));
    command->add_option("--interval", options->interval, "seconds between two tables (default 1)")
        ->option_text("SECONDS")
        ->check(number_from(0.05, 86400));
    CLI::Option *count =
        command->add_option("--count", options->count, "end after N tables, or JSON objects")
            ->option_text("N")
            ->check(whole_number(1));
    command
        ->add_option("--sort", options->sort,
                     "pid, program, plugin, device, live, cached, reserved (default), peak, rate\n"
                     "or oldest")
        ->option_text("COLUMN")
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
        "what it has from the driver, PEAK the highest RESERVED. NO_COLOR is honoured. A program\n"
        "that runs with EMM_TOP=off is not shown.");
    return {command, [options] { return run_top(*options); }};
}

} // namespace emm::tool
