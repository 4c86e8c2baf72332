#include "help.h"

#include "bench/cases.h"
#include "observe/settings.h"
#include "workload/workload.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace emm::tool {
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
    "  emm run --plugin pool:max=8GiB --record log.csv -- python train.py\n"
    "  emm export log.csv --to torch-snapshot -o snapshot.pickle\n"
    "  emm import snapshot.pickle | emm replay - --plugin pool\n"
    "  emm report log.csv -o report.html              what made the peak, in a browser\n"
    "  emm new mine                                   begin a plugin of your own\n"
    "  emm top                                        what do my processes hold?\n\n"
    "{}"
    "`emm info` shows their values. EMM_DRIVER=sim is the simulated driver.\n\n"
    "Exit status: 0 done and good; 1 something failed, leaked or did not load; 2 wrong usage.\n"
    "`emm run` ends as its program does.";

// Behind an option stands its value, not the options that it excludes or needs.
class Formatter : public CLI::Formatter {
    std::string make_option_opts(const CLI::Option *option) const override {
        const std::string &text = option->get_option_text();
        return text.empty() ? "" : " " + text;
    }
};

// CLI11 cannot tell what comes after "--".
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
