#include "manual/pages.h"

#include "usage.h"

#include <emm/emm.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/ranges.h>
#include <string_view>

namespace emm::tool::manual {
namespace {

// Text for roff: no letter is a request or an escape.
std::string roff(std::string_view text) {
    std::string result;
    for (const char letter : text) {
        const bool begins_line = result.empty() || result.back() == '\n';
        if (begins_line && (letter == '.' || letter == '\'')) {
            result += "\\&";
        }
        result += letter == '\\' ? "\\e" : letter == '-' ? "\\-" : std::string(1, letter);
    }
    return result;
}

std::string upper(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](char letter) {
        return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
    });
    return text;
}

// Unchanged, line by line.
std::string verbatim(const std::string &text) {
    return text.empty() ? "" : ".nf\n" + roff(text) + "\n.fi\n";
}

std::string synopsis(const Command &command) {
    std::string text = "[\\fIOPTIONS\\fR]";
    for (const Choice &choice : command.choices) {
        if (choice.names.empty()) {
            const std::string value = "\\fI" + roff(choice.value) + "\\fR";
            text += choice.is_required ? " " + value : " [" + value + "]";
        }
    }
    if (command.name == "run") { // CLI11 cannot tell what comes after "--"
        text += " \\-\\- \\fIPROGRAM\\fR [\\fIARGUMENT\\fR...]";
    }
    return command.name.empty() ? text + " [\\fICOMMAND\\fR ...]" : text;
}

std::string entry(const Choice &choice) {
    std::string names;
    for (const std::string &name : choice.names) {
        names += (names.empty() ? "\\fB" : ", \\fB") + roff(name) + "\\fR";
    }
    const std::string value = choice.value.empty() ? "" : "\\fI" + roff(choice.value) + "\\fR";
    return fmt::format(".TP\n{}{}{}\n{}\n", names, names.empty() || value.empty() ? "" : " ", value,
                       roff(flat(choice.help)));
}

std::string see_also(const CLI::App &app, const std::string &name) {
    std::vector<std::string> pages;
    for (const std::string &other : names_of_commands(app)) {
        if (other != name) {
            pages.push_back("\\fBemm\\-" + roff(other) + "\\fR(1)");
        }
    }
    const std::string own = name.empty() ? "" : "\\fBemm\\fR(1), ";
    return fmt::format(".SH SEE ALSO\n{}{}, \\fBemm\\fR(7)\n", own, fmt::join(pages, ", "));
}

std::string list_of_commands(const CLI::App &app) {
    std::string text = ".SH COMMANDS\n";
    for (const Command &command : commands_of(app)) {
        text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(command.name), roff(flat(command.help)));
    }
    return text;
}

} // namespace

std::string man_page(const CLI::App &app, const std::string &name) {
    const Command command = describe(app, name);
    const std::string page = name.empty() ? "emm" : "emm-" + name;
    std::string text =
        fmt::format(".TH {} 1 \"\" \"emm {}\" \"emm\"\n.SH NAME\n{} \\- {}\n", upper(page),
                    emm_version(), roff(page), roff(flat(command.help)));
    text += fmt::format(".SH SYNOPSIS\n\\fBemm{}\\fR {}\n.SH OPTIONS\n",
                        name.empty() ? "" : " " + roff(name), synopsis(command));
    for (const Choice &choice : command.choices) {
        text += entry(choice);
    }
    text += name.empty() ? list_of_commands(app) : "";
    text += ".SH DESCRIPTION\n" + verbatim(command.footer);
    return text + see_also(app, name);
}

std::string generate(const CLI::App &app, const std::string &what) {
    std::vector<std::string> known = {"bash", "zsh", "fish", "man"};
    for (const std::string &name : names_of_commands(app)) {
        known.push_back("man-" + name);
    }
    if (std::find(known.begin(), known.end(), what) == known.end()) {
        throw none_of("--generate-manual", known, what);
    }
    constexpr std::string_view prefix = "man-";
    return what == "bash"   ? bash_completion(app)
           : what == "zsh"  ? zsh_completion(app)
           : what == "fish" ? fish_completion(app)
                            : man_page(app, what.substr(std::min(prefix.size(), what.size())));
}

namespace {

// "TEXT:{a,b}" has the words that a validator accepts.
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

// An option without a group is hidden.
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
