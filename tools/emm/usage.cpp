#include "usage.h"

#include "loader/suggest.h"
#include "text.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>

namespace emm::tool {
namespace {

Problem wrong(std::string message, std::string hint = {}) {
    Problem problem;
    problem.stage = "usage";
    problem.message = std::move(message);
    problem.hint = std::move(hint);
    return problem;
}

std::vector<std::string> names_of_options(const CLI::App &app) {
    std::vector<std::string> names;
    const auto is_shown = [](const CLI::Option *option) { return !option->get_group().empty(); };
    for (const CLI::Option *option : app.get_options(is_shown)) {
        for (const std::string &name : option->get_lnames()) {
            names.push_back("--" + name);
        }
    }
    return names;
}

// "a, b or c"
std::string alternatives(const std::vector<std::string> &words) {
    const size_t last = words.size() - 1;
    return last == 0 ? words.front()
                     : fmt::format("{} or {}", fmt::join(words.begin(), words.begin() + last, ", "),
                                   words[last]);
}

// About a word that stands where a command is expected.
Problem no_command(const CLI::App &app, const std::string &word) {
    std::vector<std::string> known = names_of_commands(app);
    if (word == "--json") {
        return wrong(fmt::format("expected a command: {}, found none", alternatives(known)));
    }
    const std::vector<std::string> options = names_of_options(app);
    known.insert(known.end(), options.begin(), options.end());
    const std::string guess = loader::suggestion(word, known);
    return wrong(fmt::format("no command is called {}{}{}", in_quotes(word),
                             guess.empty() ? "" : "; ", guess),
                 guess);
}

// Options of that name that a command may be thought to have: what they say stands by itself.
std::vector<std::pair<std::string, std::string>> options_for_words(const CLI::App &command) {
    std::vector<std::pair<std::string, std::string>> options;
    for (const CLI::Option *word :
         command.get_options([](const CLI::Option *option) { return option->get_positional(); })) {
        const std::string name = word->get_name();
        options.emplace_back("--" + CLI::detail::to_lower(name), name);
        if (name == "SPEC") {
            options.emplace_back("--plugin", name); // as other commands call it
        }
    }
    return options;
}

// "SPEC", if `option` is, but for slips, an option that the command has as a word.
std::string word_meant_by(const CLI::App &command, const std::string &option) {
    for (const auto &[known, word] : options_for_words(command)) {
        if (option == known || !loader::suggestion(option, {known}).empty()) {
            return word;
        }
    }
    return "";
}

// About a word that a command does not take.
Problem no_option(const CLI::App &command, std::string word) {
    const std::string name = command.get_name();
    if (name == "run" && word.front() != '-') {
        return wrong(fmt::format("run: expected '--' before the program, as in emm run -- {0}, "
                                 "found {1}",
                                 word, in_quotes(word)));
    }
    word.resize(std::min(word.find('='), word.size()));
    const std::vector<std::string> known = names_of_options(command);
    if (std::find(known.begin(), known.end(), word) != known.end()) {
        return wrong(fmt::format("expected {0} behind the command, as in emm {1} {0}, found it "
                                 "before",
                                 word, name));
    }
    const std::string guess = loader::suggestion(word, known);
    const std::string meant = guess.empty() ? word_meant_by(command, word) : "";
    if (word.front() == '-' && !meant.empty()) {
        return wrong(fmt::format("{0}: no option is called {1}; {2} stands without one, as in emm "
                                 "{0} {2}",
                                 name, in_quotes(word), meant),
                     fmt::format("emm {} {}", name, meant));
    }
    if (word.front() != '-' && guess.empty()) {
        return wrong(fmt::format("{}: expected no further word, found {}", name, in_quotes(word)));
    }
    return wrong(fmt::format("{}: no option is called {}{}{}", name, in_quotes(word),
                             guess.empty() ? "" : "; ", guess),
                 guess);
}

} // namespace

std::vector<std::string> names_of_commands(const CLI::App &app) {
    std::vector<std::string> names;
    for (const CLI::App *command : app.get_subcommands([](const CLI::App *) { return true; })) {
        names.push_back(command->get_name());
    }
    return names;
}

bool asks_for_json(const std::vector<std::string> &words) {
    const auto end = std::find(words.begin(), words.end(), "--");
    return std::find(words.begin(), end, "--json") != end;
}

std::string none_of(const std::vector<std::string> &known, const std::string &got) {
    const std::string guess = loader::suggestion(got, known);
    return fmt::format("expected {}, found {}{}{}", alternatives(known), in_quotes(got),
                       guess.empty() ? "" : "; ", guess);
}

Failure none_of(const std::string &subject, const std::vector<std::string> &known,
                const std::string &got) {
    Problem problem = wrong(subject + ": " + none_of(known, got), loader::suggestion(got, known));
    problem.expected = alternatives(known);
    problem.got = got;
    return Failure(problem);
}

void expect_one_of(CLI::Option *option, const std::vector<std::string> &known) {
    option->check(CLI::Validator(
        [known](std::string &text) {
            const bool is_known = std::find(known.begin(), known.end(), text) != known.end();
            return is_known ? std::string() : none_of(known, text);
        },
        fmt::format("{{{}}}", fmt::join(known, ","))));
}

CLI::Validator positive_number() {
    return CLI::Validator(
        [](std::string &text) {
            const char *const end = text.data() + text.size();
            double number = 0;
            const auto [stopped, error] = std::from_chars(text.data(), end, number);
            const bool is_positive = error == std::errc() && stopped == end && number > 0;
            return is_positive ? std::string()
                               : "expected a number above 0, found " + in_quotes(text);
        },
        "");
}

Problem usage_problem(const CLI::App &app, const CLI::Error &error) {
    const std::vector<const CLI::App *> chosen =
        app.get_subcommands([](const CLI::App *command) { return command->parsed(); });
    const std::vector<std::string> words = app.remaining(true);
    const bool is_extra = dynamic_cast<const CLI::ExtrasError *>(&error) != nullptr;
    const bool is_missing = dynamic_cast<const CLI::RequiredError *>(&error) != nullptr;
    if (is_missing && !chosen.empty() && !words.empty() && words.front().starts_with('-')) {
        return no_option(*chosen.front(), words.front()); // what is missing is behind the slip
    }
    if (!is_extra || words.empty() || words.front().empty()) {
        return wrong((chosen.empty() ? "" : chosen.front()->get_name() + ": ") + error.what());
    }
    return chosen.empty() ? no_command(app, words.front())
                          : no_option(*chosen.front(), words.front());
}

} // namespace emm::tool
