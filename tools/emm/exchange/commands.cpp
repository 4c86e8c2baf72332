#include "exchange/commands.h"

#include "command.h"
#include "usage.h"

#include <CLI/CLI.hpp>

namespace emm::tool {
namespace {

void output_option(CLI::App *command, std::string &output) {
    command
        ->add_option("-o,--output", output,
                     "the file to write, once it is whole (default: standard output)")
        ->option_text("FILE");
}

void json_option(CLI::App *command, bool &json) {
    command->add_flag("--json", json,
                      "print one JSON object about the file, which -o names, and nothing else");
}

} // namespace

Command export_command(CLI::App &app) {
    const auto options = std::make_shared<ExportOptions>();
    CLI::App *command =
        app.add_subcommand("export", "Write an event log in a format that other tools show");
    command
        ->add_option("LOG", options->log,
                     "the file that EMM_EVENT_LOG or emm run --record named;\n"
                     "- for standard input")
        ->option_text(" ")
        ->required();
    CLI::Option *to =
        command
            ->add_option("--to", options->to,
                         "torch-snapshot: a memory snapshot of PyTorch, for\n"
                         "pytorch.org/memory_viz and python -m torch.cuda._memory_viz;\n"
                         "chrome-trace: JSON for ui.perfetto.dev")
            ->option_text("FORMAT")
            ->required();
    expect_one_of(to, {"torch-snapshot", "chrome-trace"});
    output_option(command, options->output);
    command
        ->add_option("--last", options->last,
                     "of each device the last N events (default: all); the viewers are\n"
                     "slow from some 100,000 on")
        ->option_text("N")
        ->check(whole_number(1));
    json_option(command, options->json);
    command->footer("  emm run --record log.csv -- python train.py\n"
                    "  emm export log.csv --to torch-snapshot -o snapshot.pickle\n"
                    "  python -m torch.cuda._memory_viz trace_plot snapshot.pickle -o plot.html\n"
                    "  emm export log.csv --to chrome-trace -o trace.json\n\n"
                    "A snapshot has device memory alone. A log does not tell what a plugin had "
                    "reserved, so each\n"
                    "block is a segment of its own there.");
    return {command, [options] { return run_export(*options); }};
}

Command import_command(CLI::App &app) {
    const auto options = std::make_shared<ImportOptions>();
    CLI::App *command = app.add_subcommand(
        "import", "Make a trace for emm replay out of what another program recorded");
    command->add_option("FILE", options->file, "plain or gzip; - for standard input")
        ->option_text(" ")
        ->required();
    CLI::Option *from =
        command
            ->add_option("--from", options->from,
                         "torch-snapshot: torch.cuda.memory._dump_snapshot();\n"
                         "rmm: the CSV of RMM's logging_resource_adaptor;\n"
                         "kineto: the JSON of torch.profiler with profile_memory=True\n"
                         "(default: what the file begins with)")
            ->option_text("FORMAT");
    expect_one_of(from, {"torch-snapshot", "rmm", "kineto"});
    output_option(command, options->output);
    command
        ->add_option("--device", options->device,
                     "the device, of a snapshot or Kineto trace with several")
        ->option_text("N")
        ->check(whole_number());
    json_option(command, options->json);
    command->footer(
        "  emm import snapshot.pickle -o trace.csv\n"
        "  emm replay trace.csv --plugin pool\n"
        "  emm import rmm_log.csv | emm replay - --plugin pool\n\n"
        "A recording may lack its beginning: the ring of a snapshot holds the latest events "
        "alone.\nBlocks that were live before are allocated at the start of the trace, and how "
        "many is told.");
    return {command, [options] { return run_import(*options); }};
}

} // namespace emm::tool
