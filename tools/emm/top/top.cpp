#include "top/top.h"

#include "clock.h"
#include "exchange/output.h"
#include "observe/text.h"
#include "print.h"
#include "problem.h"
#include "top/inquiry.h"
#include "top/process.h"
#include "top/screen.h"
#include "top/view.h"
#include "usage.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace emm::tool {
namespace top {
namespace {

constexpr double default_interval = 1, first_interval = 0.5; // seconds

bool is_set(const char *variable) {
    const char *const value = std::getenv(variable);
    return value && *value;
}

// Whether the terminal takes escape codes, and can be read and written.
bool has_terminal() {
    const char *const kind = std::getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && kind && *kind &&
           std::strcmp(kind, "dumb") != 0;
}

void sleep_for(double seconds) {
    timespec left = {static_cast<time_t>(seconds), 0};
    left.tv_nsec = static_cast<long>((seconds - static_cast<double>(left.tv_sec)) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

// Asks again and again, and knows the rates from the second time on.
class Watch {
public:
    const std::vector<Process> &look() {
        std::vector<Process> found = inquiry_.ask_all();
        find_rates(processes_, found);
        processes_ = std::move(found);
        return processes_;
    }
    const std::vector<Process> &processes() const { return processes_; }

private:
    Inquiry inquiry_;
    std::vector<Process> processes_;
};

int print_tables(const Plan &plan, Column by) {
    Watch watch;
    watch.look();
    sleep_for(plan.count == 1 ? std::min(plan.interval, first_interval) : plan.interval);
    for (uint64_t shown = 0;;) {
        const Size size = {terminal_width(STDOUT_FILENO), 0};
        const std::vector<Process> &processes = watch.look();
        print(processes.empty() ? "no process of this user uses emm\n"
                                : table_text(processes, by, size, false));
        if (++shown == plan.count) {
            return 0;
        }
        sleep_for(plan.interval);
        print("\n");
    }
}

std::string page_of(const std::vector<Process> &processes, Column by, Size size, bool styled) {
    std::string head = fmt::format("emm top: {}, by {}; q quits, s sorts by the next\n",
                                   observe::counted(processes.size(), "process"), name_of(by));
    if (size.width != 0 && head.size() > size.width) {
        head = head.substr(0, size.width - 1) + "\n";
    }
    return head +
           table_text(processes, by, {size.width, size.height > 2 ? size.height - 1 : 1}, styled);
}

// Waits until the next table is due, and shows changes meanwhile. False: the screen must end.
bool stay(Screen &screen, const Watch &watch, double until, Column &by, bool styled) {
    for (double left = until - seconds_now(); left > 0; left = until - seconds_now()) {
        const Event event = screen.wait(left);
        if (event == Event::ended || (event == Event::key && screen.key() == 'q')) {
            return false;
        }
        if (event == Event::key && screen.key() == 's') {
            by = next_column(by);
        }
        if (event != Event::time_out &&
            !screen.show(page_of(watch.processes(), by, screen.size(), styled))) {
            return false;
        }
    }
    return true;
}

// Gives the signal that ended the screen, or 0.
int run_screen(const Plan &plan, Column by) {
    const bool styled = !is_set("NO_COLOR");
    Watch watch;
    Screen screen;
    for (uint64_t shown = 0;;) {
        watch.look();
        const double interval =
            shown == 0 ? std::min(plan.interval, first_interval) : plan.interval;
        const bool goes_on = screen.show(page_of(watch.processes(), by, screen.size(), styled)) &&
                             stay(screen, watch, seconds_now() + interval, by, styled);
        if (!goes_on || ++shown == plan.count) {
            return screen.signal();
        }
    }
}

// Ends as the signal would end an unprepared program, with the terminal restored.
int show_screen(const Plan &plan, Column by) {
    const int signal = run_screen(plan, by);
    if (signal != 0) {
        std::signal(signal, SIG_DFL);
        raise(signal);
    }
    return 0;
}

int print_object(const Plan &plan, Column by) {
    Watch watch;
    watch.look();
    for (uint64_t shown = 0; shown < plan.count; ++shown) {
        sleep_for(shown == 0 ? std::min(plan.interval, first_interval) : plan.interval);
        print_json(to_json(watch.look(), by));
    }
    return 0;
}

// Once, or with an interval in place of the file before.
int write_metrics(const TopOptions &options) {
    if (options.output.empty() && options.interval > 0) {
        throw usage("top: --prometheus with --interval needs --output FILE");
    }
    Inquiry inquiry;
    for (;;) {
        Output output(options.output);
        output.write(prometheus_text(inquiry.ask_all()));
        output.finish();
        if (options.interval <= 0) {
            return 0;
        }
        sleep_for(options.interval);
    }
}

int print_report(int64_t pid, bool json) {
    const Process process = Inquiry().ask(pid, monitor::RequestKind::report, "top: --dump");
    if (process.report.empty()) {
        Problem problem;
        problem.stage = "top";
        problem.message =
            fmt::format("top: --dump: process {} has not written its report: {}", pid,
                        process.problem.empty() ? "its plugin does not answer" : process.problem);
        throw Failure(problem);
    }
    if (json) {
        print_json(Json{{"pid", pid}, {"report", process.report}});
    } else {
        print(process.report);
    }
    return 0;
}

} // namespace

Plan plan_for(const TopOptions &options, bool is_terminal) {
    Plan plan;
    plan.interval = options.interval > 0 ? options.interval : default_interval;
    if (options.dump != 0) {
        plan.mode = Mode::dump;
    } else if (options.prometheus) {
        plan.mode = Mode::prometheus;
    } else if (options.json) {
        plan.mode = Mode::json;
        plan.count = options.count != 0 ? options.count : 1;
    } else if (is_terminal) {
        plan.mode = Mode::screen;
        plan.count = options.count;
    } else {
        plan.count = options.count != 0 ? options.count : options.interval > 0 ? 0 : 1;
    }
    return plan;
}

} // namespace top

int run_top(const TopOptions &options) {
    const top::Plan plan = top::plan_for(options, top::has_terminal());
    top::Column by = top::Column::reserved;
    top::find_column(options.sort, by);
    switch (plan.mode) {
    case top::Mode::dump:
        return top::print_report(options.dump, options.json);
    case top::Mode::prometheus:
        return top::write_metrics(options);
    case top::Mode::json:
        return top::print_object(plan, by);
    case top::Mode::screen:
        return top::show_screen(plan, by);
    default:
        return top::print_tables(plan, by);
    }
}

} // namespace emm::tool
