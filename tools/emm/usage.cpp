#include "usage.h"

#include "bench/plan.h"
#include "observe/settings.h"
#include "observe/suggest.h"
#include "print.h"
#include "spec.h"
#include "workload/workload.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

namespace emm::tool {
namespace {

Problem wrong(std::string message, std::string hint = {}) {
    return {.stage = "usage", .message = std::move(message), .hint = std::move(hint)};
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

// Whether all of the text is a number of that type between these bounds.
template <class Number> bool is_between(const std::string &text, Number least, Number most) {
    const char *const end = text.data() + text.size();
    Number number = 0;
    const auto [stopped, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && stopped == end && least <= number && number <= most;
}

template <class Number>
CLI::Validator number_between(const std::string &expected, Number least, Number most) {
    return CLI::Validator(
        [=](std::string &text) {
            return is_between(text, least, most)
                       ? std::string()
                       : fmt::format("expected {}, found {}", expected, in_quotes(text));
        },
        "");
}

// Rewrites CLI11's texts that lack the expected and the found value, or that use its own words for
// values.
std::string in_our_words(const CLI::App &command, const CLI::Error &error) {
    const std::string kind = error.get_name(), said = error.what();
    const std::string first = said.substr(0, said.find_first_of(": "));
    const std::string last = said.substr(said.rfind(' ') + 1);
    const CLI::Option *const option = command.get_option_no_throw(first);
    const std::string value = option ? CLI::detail::trim_copy(option->get_option_text()) : "";
    if (kind == "RequiredError") {
        return fmt::format("{}{}{} is missing", first, value.empty() ? "" : " ", value);
    }
    if (kind == "RequiresError") {
        return fmt::format("{} needs {}", first, last);
    }
    if (kind == "ExcludesError") {
        return fmt::format("give {} or {}, not both", first, last);
    }
    if (kind == "ArgumentMismatch" && !value.empty()) {
        return fmt::format("{}: expected {}, found {}", first, value,
                           last == "missing" ? "none" : last);
    }
    const std::string flag = said.substr(0, said.rfind(" = ")), beginning = "Could not convert: ";
    if (kind == "ConversionError" && flag.starts_with(beginning)) { // others are checked
        return fmt::format("{}: expected no value, found {}", flag.substr(beginning.size()),
                           in_quotes(last));
    }
    return said;
}

// About a word that stands where a command is expected.
Problem no_command(const CLI::App &app, const std::string &word) {
    std::vector<std::string> known = names_of_commands(app);
    if (word == "--json") {
        return wrong(fmt::format("give a command: {}", alternatives(known)));
    }
    const std::vector<std::string> options = names_of_options(app);
    known.insert(known.end(), options.begin(), options.end());
    const std::string guess = observe::suggestion(word, known);
    return wrong(fmt::format("no command is called {}{}{}", in_quotes(word),
                             guess.empty() ? "" : "; ", guess),
                 guess);
}

// Options that a command may be thought to have by its words: the value stands by itself.
std::vector<std::pair<std::string, std::string>> options_for_words(const CLI::App &command) {
    std::vector<std::pair<std::string, std::string>> options;
    for (const CLI::Option *word :
         command.get_options([](const CLI::Option *option) { return option->get_positional(); })) {
        const std::string name = word->get_name();
        options.emplace_back("--" + CLI::detail::to_lower(name), name);
        if (name == "SPEC") {
            options.emplace_back("--plugin", name); // the name in other commands
        }
    }
    return options;
}

// "SPEC", if `option` resembles an option for one of the command's words more than it resembles the
// command's own options, which are `known`.
std::string word_meant_by(const CLI::App &command, const std::string &option,
                          std::vector<std::string> known) {
    const auto words = options_for_words(command);
    for (const auto &[name, word] : words) {
        known.push_back(name);
    }
    const std::string *const closest = observe::closest(option, known);
    for (const auto &[name, word] : words) {
        if (closest && *closest == name) {
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
        return wrong(fmt::format("{0} belongs after the command, as in emm {1} {0}", word, name));
    }
    const std::string guess = observe::suggestion(word, known);
    const std::string meant = word_meant_by(command, word, known);
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
    const std::string guess = observe::suggestion(got, known);
    return fmt::format("expected {}, found {}{}{}", alternatives(known), in_quotes(got),
                       guess.empty() ? "" : "; ", guess);
}

Failure none_of(const std::string &subject, const std::vector<std::string> &known,
                const std::string &got) {
    Problem problem = wrong(subject + ": " + none_of(known, got), observe::suggestion(got, known));
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

void json_flag(CLI::App *command, bool &flag) {
    command->add_flag("--json", flag, "print one JSON object and nothing else");
}

void plugin_option(CLI::App *command, std::vector<std::string> &specs) {
    command
        ->add_option("--plugin", specs,
                     "a plugin, in a process of its own; may be given several times")
        ->option_text("SPEC")
        ->take_all()
        ->allow_extra_args(false); // the trace may follow
}

void expect_one_plugin(const char *command, const std::string &spec) {
    if (is_list(spec)) {
        throw usage(
            fmt::format("{}: expected one plugin, found a list, {}", command, in_quotes(spec)));
    }
}

CLI::Validator positive_number() {
    return number_between("a number above 0", std::numeric_limits<double>::min(),
                          std::numeric_limits<double>::max());
}

CLI::Validator number_from(double least, double most) {
    const bool is_any = most == std::numeric_limits<double>::max();
    return number_between(is_any ? fmt::format("a number of {} or more", least)
                                 : fmt::format("a number from {} to {}", least, most),
                          least, most);
}

CLI::Validator whole_number(uint64_t least, uint64_t most) {
    const bool is_any = most == std::numeric_limits<uint64_t>::max();
    const std::string upwards = least == 0 ? "" : fmt::format(" above {}", least - 1);
    return number_between("a whole number" +
                              (is_any ? upwards : fmt::format(" from {} to {}", least, most)),
                          least, most);
}

Failure usage(std::string message) {
    return Failure(wrong(std::move(message)));
}

Problem usage_problem(const CLI::App &app, const CLI::Error &error) {
    const std::vector<const CLI::App *> chosen =
        app.get_subcommands([](const CLI::App *command) { return command->parsed(); });
    const std::vector<std::string> words = app.remaining(true);
    const bool is_extra = dynamic_cast<const CLI::ExtrasError *>(&error) != nullptr;
    const bool is_missing = dynamic_cast<const CLI::RequiredError *>(&error) != nullptr;
    if (is_missing && !chosen.empty() && !words.empty() && words.front().starts_with('-')) {
        return no_option(*chosen.front(), words.front()); // another one only seems missing
    }
    if (!is_extra || words.empty() || words.front().empty()) {
        return chosen.empty() ? wrong(in_our_words(app, error))
                              : wrong(chosen.front()->get_name() + ": " +
                                      in_our_words(*chosen.front(), error));
    }
    return chosen.empty() ? no_command(app, words.front())
                          : no_option(*chosen.front(), words.front());
}

namespace {

constexpr const char *footer = // with the variables
    "A SPEC names a plugin and its options: NAME[:KEY=VALUE,...], as in pool:max=8GiB, or the\n"
    "path of a plugin file, which has a '/', in place of NAME. Specs separated by ';' are tried in "
    "turn.\n"
    "Without one, EMM_PLUGIN decides, and without that passthrough serves.\n\n"
    "  emm info pool                                  what the pool is, and its options\n"
    "  emm replay run.csv.gz --plugin passthrough --plugin pool:max=8GiB\n"
    "  emm replay --generate overlap --touch          is anything handed over too early?\n"
    "  emm bench --plugin pool --case pair,mixed --threads 1,2,4\n"
    "  EMM_DRIVER=sim emm check ./libemm-mine.so      does a plugin meet its requirements?\n"
    "  emm run --plugin pool --limit 8GiB --record log.csv -- python train.py\n"
    "  emm export log.csv --to torch-snapshot -o snapshot.pickle\n"
    "  emm import snapshot.pickle | emm replay - --plugin pool\n"
    "  emm report log.csv -o report.html              what made the peak, in a browser\n"
    "  emm new mine                                   begin a plugin of your own\n"
    "  emm top                                        what do my processes hold?\n"
    "  emm limit 7810 6GiB                            let one have less, or more\n\n"
    "{}"
    "`emm info` shows their values. EMM_DRIVER=sim is the simulated driver.\n\n"
    "Exit status: 0 done and good; 1 something failed, leaked or did not load; 2 wrong usage.\n"
    "`emm run` ends as its program does.";

// Prints an option with its value, without the options that it excludes or needs.
class Formatter : public CLI::Formatter {
    std::string make_option_opts(const CLI::Option *option) const override {
        const std::string &text = option->get_option_text();
        return text.empty() ? "" : " " + text;
    }
    // Omits how many words the option takes.
    std::string make_option_usage(const CLI::Option *option) const override {
        const std::string name = make_option_name(option, true);
        return option->get_required() ? name : "[" + name + "]";
    }
};

// CLI11 cannot describe the words after "--".
class RunFormatter : public Formatter {
    std::string make_usage(const CLI::App *, std::string name) const override {
        return "Usage: " + name + " [OPTIONS] -- PROGRAM [ARGUMENT...]\n";
    }
};

// "Environment: ", and all variables, in lines that fit a terminal.
std::string variables_help() {
    constexpr size_t widest = 90;
    const std::vector<std::string> &names = observe::variables();
    std::string text, line = "Environment:";
    for (const std::string &name : names) {
        const std::string word = name + (name == names.back() ? "." : ",");
        if (line.size() + 1 + word.size() > widest) {
            text += line + "\n";
            line = word;
        } else {
            line += " " + word;
        }
    }
    return text + line + "\n";
}

std::string columns(const char *name, const char *help) {
    return fmt::format("  {:<15} {}\n", name, help);
}

} // namespace

const char *const help_about =
    "Shows and measures CUDA memory allocators: the plugins through which emm serves\n"
    "a program's device and pinned host memory.";

std::string help_footer() {
    return fmt::format(footer, variables_help());
}

std::shared_ptr<CLI::Formatter> help_formatter() {
    return std::make_shared<Formatter>();
}

std::shared_ptr<CLI::Formatter> help_formatter_of_run() {
    return std::make_shared<RunFormatter>();
}

std::string workload_help() {
    std::string text = "Workloads for --generate:\n";
    for (const Workload &workload : workloads()) {
        text += columns(workload.name, workload.help);
    }
    return text;
}

std::string case_help() {
    std::string text = "Cases, with one pair of an allocation and its free as the unit:\n";
    for (const BenchCase &known : bench_cases()) {
        text += columns(known.name, known.help);
    }
    return text;
}

} // namespace emm::tool
