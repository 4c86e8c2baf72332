#include "command.h"

#include "report/report.h"
#include "usage.h"

#include <CLI/CLI.hpp>

namespace emm::tool {

Command report_command(CLI::App &app) {
    const auto options = std::make_shared<ReportOptions>();
    CLI::App *command = app.add_subcommand(
        "report", "Show in a browser who held memory, and what made the peak: one HTML file");
    command
        ->add_option("LOG", options->input,
                     "an event log (EMM_EVENT_LOG, emm run --record) or a trace,\n"
                     "plain or gzip; - for standard input")
        ->option_text(" ")
        ->required();
    command
        ->add_option("-o,--output", options->output,
                     "the page to write, once it is whole (default: report.html,\n"
                     "with --json none); - for standard output")
        ->option_text("FILE");
    CLI::Option *plugin =
        command
            ->add_option("--plugin", options->plugin,
                         "replay the events through a plugin, on the simulated driver unless\n"
                         "EMM_DRIVER is set: what it reserves, its driver calls, its addresses")
            ->option_text("SPEC");
    command
        ->add_option("--compare", options->compare,
                     "the same for two to six plugins, side by side; comes behind LOG")
        ->option_text("SPEC SPEC...")
        ->expected(2, 6)
        ->excludes(plugin);
    command
        ->add_option("--limit", options->limit,
                     "seconds (default 120) that a plugin's process may be silent")
        ->option_text("SECONDS")
        ->check(positive_number());
    command->add_flag("--json", options->json,
                      "print the figures of the page as one JSON object, and nothing else");
    command->footer(
        "  emm run --plugin pool --record log.csv -- python train.py\n"
        "  emm report log.csv -o report.html\n"
        "  emm report log.csv --plugin pool:max=8GiB\n"
        "  emm report trace.csv.gz --compare pool async -o compared.html\n\n"
        "The page needs no other file and no network. A log does not tell what the plugin had "
        "reserved,\nnor which driver calls it made; a trace has no callers and no addresses. "
        "A replay shows what\na plugin would have done with the same events.");
    return {command, [options] { return run_report(*options); }};
}

} // namespace emm::tool
