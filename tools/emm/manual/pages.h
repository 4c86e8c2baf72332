#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

// The command line's own description, for manual pages and completion.
namespace emm::tool::manual {

// The texts that a build generates from the command line's description: "man" (emm.1),
// "man-COMMAND", "bash", "zsh" or "fish". Throws Failure for any other `what`.
std::string generate(const CLI::App &app, const std::string &what);

// The parts of generate().
std::string man_page(const CLI::App &app, const std::string &command);
std::string bash_completion(const CLI::App &app);
std::string zsh_completion(const CLI::App &app);
std::string fish_completion(const CLI::App &app);

struct Choice {
    std::vector<std::string> names; // "-o", "--output"; none: a word by its place
    std::string value;              // the word for its value, "FILE"; "": it has none
    std::vector<std::string> words; // the possible values; empty: not known
    std::string help;               // may have several lines
    bool is_required = false;
};

struct Command {
    std::string name, help, footer;
    std::vector<Choice> choices;
};

// The command of that name; "": emm itself.
Command describe(const CLI::App &app, const std::string &name);

// All commands, in the order of the help.
std::vector<Command> commands_of(const CLI::App &app);

// A text on one line.
std::string flat(const std::string &text);

} // namespace emm::tool::manual
