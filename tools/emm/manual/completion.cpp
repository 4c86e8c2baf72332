// Completion for shells. Values of options are offered where they are known; files otherwise.
#include "manual/pages.h"

#include <fmt/ranges.h>
#include <string_view>

namespace emm::tool::manual {
namespace {

std::vector<std::string> option_names(const Command &command) {
    std::vector<std::string> names;
    for (const Choice &choice : command.choices) {
        names.insert(names.end(), choice.names.begin(), choice.names.end());
    }
    return names;
}

// In single quotes, `escaped` characters with a backslash before them.
std::string quoted(std::string_view text, std::string_view escaped) {
    std::string result = "'";
    for (const char letter : text) {
        if (escaped.find(letter) != std::string_view::npos) {
            result += '\\';
        }
        result += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    }
    return result + "'";
}

// The values of a command's options, by the word before.
std::string bash_values(const Command &command) {
    std::string text;
    for (const Choice &choice : command.choices) {
        if (!choice.names.empty() && !choice.value.empty()) {
            text += fmt::format("        {})\n            words='{}' kind=value ;;\n",
                                fmt::join(choice.names, "|"), fmt::join(choice.words, " "));
        }
    }
    return text.empty() ? "" : "        case $previous in\n" + text + "        esac\n";
}

std::string bash_command(const Command &command) {
    return fmt::format("    {})\n        words='{}'\n{}        ;;\n", command.name,
                       fmt::join(option_names(command), " "), bash_values(command));
}

std::string zsh_action(const Choice &choice) {
    return choice.words.empty() ? "_files" : fmt::format("({})", fmt::join(choice.words, " "));
}

std::string zsh_argument(const Choice &choice) {
    constexpr std::string_view special = "[]:\\";
    if (choice.names.empty()) {
        return "            " + quoted("*:" + choice.value + ":" + zsh_action(choice), "");
    }
    const std::string help = quoted(flat(choice.help), special);
    std::string text;
    for (const std::string &name : choice.names) {
        const std::string value = choice.value.empty() ? ""
                                                       : ":" + quoted(choice.value, special) + ":" +
                                                             quoted(zsh_action(choice), "");
        text += fmt::format("{}            '*{}['{}']'{}", text.empty() ? "" : " \\\n", name, help,
                            value);
    }
    return text;
}

std::string zsh_arguments(const Command &command) {
    std::string text;
    for (const Choice &choice : command.choices) {
        text += " \\\n" + zsh_argument(choice);
    }
    return text;
}

std::string fish_option(const std::string &command, const Choice &choice) {
    std::string text = "complete -c emm -n ";
    text += command.empty() ? "__fish_use_subcommand"
                            : quoted("__fish_seen_subcommand_from " + command, "");
    for (const std::string &name : choice.names) {
        text += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    if (!choice.value.empty()) {
        text +=
            choice.words.empty() ? " -r" : fmt::format(" -x -a '{}'", fmt::join(choice.words, " "));
    }
    return text + " -d " + quoted(flat(choice.help), "\\") + "\n";
}

} // namespace

std::string bash_completion(const CLI::App &app) {
    const Command emm = describe(app, "");
    std::vector<std::string> first = option_names(emm);
    std::string cases;
    for (const Command &command : commands_of(app)) {
        first.push_back(command.name);
        cases += bash_command(command);
    }
    return fmt::format(
        "# bash completion for emm, generated from its command line\n"
        "_emm() {{\n"
        "    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}\n"
        "    local words='' kind=option command='' i\n"
        "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "        case ${{COMP_WORDS[i]}} in\n"
        "        --) COMPREPLY=(); return ;; # a program's words\n"
        "        -*) ;;\n"
        "        *) command=${{command:-${{COMP_WORDS[i]}}}} ;;\n"
        "        esac\n"
        "    done\n"
        "    case $command in\n"
        "    '')\n        words='{}' kind=value ;;\n"
        "{}"
        "    esac\n"
        "    if [[ $kind == option && $current != -* ]]; then\n"
        "        words=''\n"
        "    fi\n"
        "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
        "}}\n"
        "complete -o default -F _emm emm\n",
        fmt::join(first, " "), cases);
}

std::string zsh_completion(const CLI::App &app) {
    std::string names, cases;
    for (const Command &command : commands_of(app)) {
        names += "        " + quoted(command.name + ":" + flat(command.help), "") + "\n";
        cases += fmt::format("        {})\n            _arguments -s{} ;;\n", command.name,
                             zsh_arguments(command));
    }
    return fmt::format("#compdef emm\n"
                       "# zsh completion for emm, generated from its command line\n"
                       "_emm() {{\n"
                       "    local curcontext=\"$curcontext\" state line\n"
                       "    local -a commands\n"
                       "    commands=(\n{}    )\n"
                       "    _arguments -C{} \\\n"
                       "            '1:command:->command' '*::argument:->arguments'\n"
                       "    case $state in\n"
                       "    command)\n        _describe command commands ;;\n"
                       "    arguments)\n        case $line[1] in\n{}        esac ;;\n"
                       "    esac\n"
                       "}}\n"
                       "_emm \"$@\"\n",
                       names, zsh_arguments(describe(app, "")), cases);
}

std::string fish_completion(const CLI::App &app) {
    std::string text = "# fish completion for emm, generated from its command line\n";
    for (const Choice &choice : describe(app, "").choices) {
        text += fish_option("", choice);
    }
    for (const Command &command : commands_of(app)) {
        text += fmt::format("complete -c emm -n __fish_use_subcommand -f -a {} -d {}\n",
                            command.name, quoted(flat(command.help), "\\"));
        for (const Choice &choice : command.choices) {
            text += choice.names.empty() ? "" : fish_option(command.name, choice);
        }
    }
    return text;
}

} // namespace emm::tool::manual
