#include "check/report.h"

#include "child.h"
#include "observe/text.h"
#include "print.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fmt/ranges.h>
#include <sstream>

namespace emm::tool::check {
namespace {

std::string indented(const std::string &text) {
    std::istringstream lines(text);
    std::string result;
    for (std::string line; std::getline(lines, line);) {
        result += "          " + line + "\n";
    }
    return result;
}

const char *word_for(const std::string &state) {
    return state == "passed" ? "ok" : state == "failed" ? "FAIL" : "skip";
}

} // namespace

Report::Report(const CheckOptions &options, const Json &plugin)
    : options_(options), plugin_(plugin) {
    if (options.json) {
        return;
    }
    const auto text = [&](const char *key) { return plugin.at(key).get<std::string>(); };
    print(fmt::format("plugin: {} {} ({})\ndriver: {}\nseed: {}\n\n", text("name"), text("version"),
                      text("path"), text("driver_line"), options.seed));
}

void Report::add(const Planned &planned, const CaseOutcome &outcome) {
    const auto requirements = observe::split(planned.entry->requirements, ' ');
    if (outcome.state == "failed") {
        ++failed_;
        for (const std::string &requirement : requirements) {
            if (std::find(broken_.begin(), broken_.end(), requirement) == broken_.end()) {
                broken_.push_back(requirement);
            }
        }
    } else {
        ++(outcome.state == "passed" ? passed_ : skipped_);
    }
    if (options_.json) {
        told_.push_back({{"name", planned.name()},
                         {"requirements", requirements},
                         {"outcome", outcome.state},
                         {"message", outcome.message},
                         {"output", outcome.output},
                         {"seconds", outcome.seconds}});
        return;
    }
    print(paragraph(planned, outcome));
}

std::string Report::paragraph(const Planned &planned, const CaseOutcome &outcome) const {
    std::string text =
        fmt::format("{:>4}  {:<30} {:<18} {:5.0f} ms\n", word_for(outcome.state), planned.name(),
                    planned.entry->requirements, outcome.seconds * 1000);
    text += indented(outcome.message);
    if (outcome.state == "failed") {
        const char *const driver = std::getenv("EMM_DRIVER");
        text += indented(outcome.output);
        text += fmt::format(
            "          requirement: {}\n          again:       {}emm check '{}' --filter {} "
            "--seed {}\n",
            planned.entry->says, driver ? fmt::format("EMM_DRIVER={} ", driver) : "", options_.spec,
            planned.name(), options_.seed);
    }
    return text;
}

std::string Report::verdict() const {
    if (passed_ + failed_ == 0) {
        return options_.spec + ": nothing was checked";
    }
    return failed_ == 0 ? options_.spec + " keeps every requirement that was checked"
                        : fmt::format("{} fails {}", options_.spec, fmt::join(broken_, " "));
}

void Report::end(double seconds) {
    if (options_.json) {
        Json report = plugin_;
        report.erase("driver_line");
        report["seed"] = options_.seed;
        report["cases"] = told_;
        report["passed"] = passed_;
        report["failed"] = failed_;
        report["skipped"] = skipped_;
        report["verdict"] = verdict();
        print_json(report);
        return;
    }
    print(fmt::format("\n{} cases: {} passed, {} failed, {} skipped, in {:.1f} s\nverdict: {}\n",
                      passed_ + failed_ + skipped_, passed_, failed_, skipped_, seconds,
                      verdict()));
}

void list(const std::vector<Planned> &planned, bool json) {
    Json all = Json::array();
    std::string text;
    for (const Planned &one : planned) {
        if (json) {
            all.push_back({{"name", one.name()},
                           {"requirements", observe::split(one.entry->requirements, ' ')},
                           {"says", one.entry->says},
                           {"needs_simulator", (one.entry->needs & on_simulator) != 0}});
        } else {
            text += fmt::format("{:<26} {:<27} {}{}\n", one.name(), one.entry->requirements,
                                one.entry->says,
                                one.entry->needs & on_simulator ? " (simulated driver only)" : "");
        }
    }
    json ? print_json(Json{{"cases", all}}) : print(text);
}

namespace {

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
struct sigaction earlier[sizeof signals / sizeof *signals];
int report_to = -1;
thread_local const char *slot = nullptr;

// The earlier handler, a sanitizer's or the default, gets the signal when this one returns.
void on_crash(int number) {
    if (slot) {
        Channel::send_inside(report_to, slot);
    }
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (signals[i] == number) {
            sigaction(number, &earlier[i], nullptr);
        }
    }
    if (number == SIGABRT) {
        raise(number);
    }
}

} // namespace

InSlot::InSlot(const char *name) : outer_(slot) {
    slot = name;
}

InSlot::~InSlot() {
    slot = outer_;
}

void report_crashes(int descriptor) {
    // An overflow of the stack leaves no room on it. A sanitizer has a stack of its own for this
    // case.
    static char room[64 << 10];
    stack_t stack = {};
    if (sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE)) {
        stack = {room, 0, sizeof room};
        sigaltstack(&stack, nullptr);
    }
    report_to = descriptor;
    struct sigaction action = {};
    action.sa_handler = &on_crash;
    action.sa_flags = SA_ONSTACK | SA_NODEFER;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        sigaction(signals[i], &action, &earlier[i]);
    }
}

} // namespace emm::tool::check
