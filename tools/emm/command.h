#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace emm::tool {

class WriteSignalsIgnored;

// A command: what the command line may say, and what is done then; that returns the exit status and
// throws Failure. It owns its options.
struct Command {
    CLI::App *app;
    std::function<int()> run;
};

Command info_command(CLI::App &app);
Command replay_command(CLI::App &app);
Command bench_command(CLI::App &app);
Command events_command(CLI::App &app);
Command check_command(CLI::App &app);
// `program`: with its arguments, once the command line is read. It gets the signals as they were.
Command run_command(CLI::App &app, const std::vector<std::string> &program,
                    WriteSignalsIgnored &signals);
Command export_command(CLI::App &app);
Command import_command(CLI::App &app);
Command new_command(CLI::App &app);
Command top_command(CLI::App &app);
Command report_command(CLI::App &app);

// Reads the command line and runs what it asks for; returns the exit status.
int run_command_line(int argc, char **argv);

} // namespace emm::tool
