#pragma once

#include <memory>
#include <string>

namespace CLI {
class Formatter;
} // namespace CLI

// What --help says beyond the options.
namespace emm::tool {

extern const char *const help_about;
std::string help_footer();
std::string workload_help(); // what --generate takes
std::string case_help();     // what --case takes

std::shared_ptr<CLI::Formatter> help_formatter();
std::shared_ptr<CLI::Formatter> help_formatter_of_run();

} // namespace emm::tool
