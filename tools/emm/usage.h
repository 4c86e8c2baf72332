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

// What --help says beyond the options, and what is said about a command line that cannot be obeyed:
// exit status 2.
namespace emm::tool {

std::vector<std::string> names_of_commands(const CLI::App &app);

// Whether --json stands among the tool's own words, which are those before "--".
bool asks_for_json(const std::vector<std::string> &words);

// "expected a, b or c, found 'x'; did you mean 'c'?"
std::string none_of(const std::vector<std::string> &known, const std::string &got);

// The same as a Failure, about `subject`, which is an option.
Failure none_of(const std::string &subject, const std::vector<std::string> &known,
                const std::string &got);

// The option takes one of these words.
void expect_one_of(CLI::Option *option, const std::vector<std::string> &known);

// What several commands have: --json, and --plugin as often as one likes.
void json_flag(CLI::App *command, bool &json);
void plugin_option(CLI::App *command, std::vector<std::string> &specs);

// Throws Failure if `spec` is a list.
void expect_one_plugin(const char *command, const std::string &spec);

// For options that take a number: above 0; between two; or a whole one, without signs. Without
// `most`, as far as 64 bits go.
CLI::Validator positive_number();
CLI::Validator number_from(double least, double most = std::numeric_limits<double>::max());
CLI::Validator whole_number(uint64_t least = 0, uint64_t most = UINT64_MAX);

Failure usage(std::string message);

// About what CLI11 could not read, with the option or command that may be meant.
Problem usage_problem(const CLI::App &app, const CLI::Error &error);

extern const char *const help_about;
std::string help_footer();
std::string workload_help(); // what --generate takes
std::string case_help();     // what --case takes

std::shared_ptr<CLI::Formatter> help_formatter();
std::shared_ptr<CLI::Formatter> help_formatter_of_run();

} // namespace emm::tool
