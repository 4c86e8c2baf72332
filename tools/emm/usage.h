#pragma once

#include "problem.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Error;
class Formatter;
class Option;
class Validator;
} // namespace CLI

// The parts of --help beyond the options, and the reports on a wrong command line: exit status 2.
namespace emm::tool {

std::vector<std::string> names_of_commands(const CLI::App &app);

// Whether --json stands among the tool's own words, which are those before "--".
bool asks_for_json(const std::vector<std::string> &words);

// "expected a, b or c, found 'x'; did you mean 'c'?"
std::string none_of(const std::vector<std::string> &known, const std::string &got);

// The same as a Failure, about `subject`, which is an option.
Failure none_of(const std::string &subject, const std::vector<std::string> &known,
                const std::string &got);

// The option takes one of these words only.
void expect_one_of(CLI::Option *option, const std::vector<std::string> &known);

// Options that several commands have: --json, and --plugin, which may be repeated.
void json_flag(CLI::App *command, bool &json);
void plugin_option(CLI::App *command, std::vector<std::string> &specs);

// Throws Failure if `spec` is a list.
void expect_one_plugin(const char *command, const std::string &spec);

// Checks of options with a number: above 0; between two; or a whole number without sign. Without
// `most`, up to 64 bits.
CLI::Validator positive_number();
CLI::Validator number_from(double least, double most = std::numeric_limits<double>::max());
CLI::Validator whole_number(uint64_t least = 0, uint64_t most = UINT64_MAX);

Failure usage(std::string message);

// The report on a command line that CLI11 could not read, with the option or command that may be
// meant.
Problem usage_problem(const CLI::App &app, const CLI::Error &error);

extern const char *const help_about;
std::string help_footer();
std::string workload_help(); // the values of --generate
std::string case_help();     // the values of --case

std::shared_ptr<CLI::Formatter> help_formatter();
std::shared_ptr<CLI::Formatter> help_formatter_of_run();

} // namespace emm::tool
