#include "manual/description.h"

#include "usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace emm::tool::manual {
namespace {

// "TEXT:{a,b}" has the words that a validator takes.
std::vector<std::string> words_of(const CLI::Option &option) {
    const std::string type = option.get_type_name();
    const size_t begin = type.find('{'), end = type.rfind('}');
    return begin == std::string::npos || end == std::string::npos || end < begin
               ? std::vector<std::string>()
               : CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

std::string value_of(const CLI::Option &option) {
    const std::string text = flat(option.get_option_text());
    if (option.get_positional()) {
        return option.get_name(true);
    }
    return option.get_items_expected_max() == 0 ? "" : text.empty() ? "VALUE" : text;
}

Choice choice_of(const CLI::Option &option) {
    Choice choice;
    for (const std::string &name : option.get_snames()) {
        choice.names.push_back("-" + name);
    }
    for (const std::string &name : option.get_lnames()) {
        choice.names.push_back("--" + name);
    }
    choice.value = value_of(option);
    choice.words = words_of(option);
    choice.help = option.get_description();
    choice.is_required = option.get_required();
    return choice;
}

} // namespace

// What has no group is hidden.
Command describe(const CLI::App &app, const std::string &name) {
    const CLI::App &from = name.empty() ? app : *app.get_subcommand(name);
    Command command = {name, from.get_description(), from.get_footer(), {}};
    for (const CLI::Option *option : from.get_options()) {
        if (!option->get_group().empty()) {
            command.choices.push_back(choice_of(*option));
        }
    }
    return command;
}

std::vector<Command> commands_of(const CLI::App &app) {
    std::vector<Command> commands;
    for (const std::string &name : names_of_commands(app)) {
        commands.push_back(describe(app, name));
    }
    return commands;
}

std::string flat(const std::string &text) {
    std::string line = text;
    std::replace(line.begin(), line.end(), '\n', ' ');
    line.erase(0, line.find_first_not_of(' '));
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

} // namespace emm::tool::manual
