#include "command.h"

#include "run/run.h"
#include "spec.h"
#include "usage.h"

#include <CLI/CLI.hpp>

namespace emm::tool {

Command run_command(CLI::App &app, const std::vector<std::string> &program,
                    WriteSignalsIgnored &signals) {
    const auto options = std::make_shared<RunOptions>();
    CLI::App *run = app.add_subcommand(
        "run", "Start any CUDA program with its memory on a plugin: no source, no rebuild");
    run->formatter(help_formatter_of_run());
    run->get_formatter()->column_width(34);
    run->add_option("--plugin", options->plugin, "the plugin (default: EMM_PLUGIN)")
        ->option_text("SPEC");
    run->add_flag("--sync-free", options->sync_free,
                  "a free waits for the work of its context, as the driver's does");
    run->add_flag("--zero", options->zero, "memory is zero when it is handed out");
    run->add_option("--release", options->release,
                    "when an allocation fails, have the caches of these modules (torch,\n"
                    "cupy) of a Python program give back, and try again")
        ->option_text("MODULE,...");
    run->add_option("--record", options->record,
                    "write each allocation and free to FILE, as EMM_EVENT_LOG does;\n"
                    "%p in the name is the process id")
        ->option_text("FILE");
    run->add_option("--track", options->track,
                    "keep who asked for each live allocation, as EMM_TRACK does: module or\n"
                    "stack, with :sample=1/N for one of N; told when memory runs out")
        ->option_text("SPEC");
    run->add_flag("--audit", options->audit,
                  "also for a program that opens the driver by its absolute path");
    run->add_flag("--no-children", options->no_children,
                  "programs that the program starts run without emm");
    run->add_flag("--print-env", options->print_env,
                  "print the variables for a shell, and start nothing");
    run->footer(
        "  emm run --plugin pool:max=8GiB -- python train.py\n"
        "  eval \"$(emm run --plugin pool --print-env)\"\n\n"
        "LD_PRELOAD and LD_LIBRARY_PATH lead the program to emm's libcuda.so.1, which serves "
        "its\nmemory and passes all other calls on.\n\n"
        "Exit status: the program's; 1: the plugin does not load; 2: wrong usage; 126: the "
        "program\ncannot be run, or not on emm; 127: it is not there.");
    return {run, [options, &program, &signals] {
                options->program = program;
                if (options->plugin) {
                    make_paths_absolute(*options->plugin);
                }
                return run_program(*options, signals);
            }};
}

} // namespace emm::tool
