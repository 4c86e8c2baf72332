#pragma once

namespace CLI {
class App;
}

namespace emm::tool {

struct ExportOptions;
struct ImportOptions;

// The two commands, with their options and help.
CLI::App *add_export_command(CLI::App &app, ExportOptions &options);
CLI::App *add_import_command(CLI::App &app, ImportOptions &options);

} // namespace emm::tool
