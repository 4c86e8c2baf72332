#pragma once

namespace CLI {
class App;
}

namespace emm::tool {

struct ReportOptions;

// The command, with its options and help.
CLI::App *add_report_command(CLI::App &app, ReportOptions &options);

} // namespace emm::tool
