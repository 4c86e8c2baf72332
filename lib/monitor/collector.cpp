#include "monitor/collector.h"

#include "core/lifecycle/registry.h"
#include "core/reports/holders.h"
#include "observe/log.h"
#include "observe/process.h"
#include "sockets/server.h"
#include "sockets/socket.h"

#include <algorithm>
#include <chrono>
#include <fmt/ranges.h>

namespace emm::monitor {
namespace {

std::vector<emm_context *> oldest_first() {
    std::vector<emm_context *> all;
    for (emm_context *context = core::first_context(); context; context = context->next) {
        if ((context->state.load() & core::state_late) == 0) {
            all.push_back(context);
        }
    }
    std::reverse(all.begin(), all.end());
    return all;
}

// The lines of core/reports/holders.h, which go to the log, too.
std::string write_report() {
    const std::vector<std::string> lines = core::memory_report_lines();
    core::write_report(lines);
    return lines.empty() ? "no context is served" : fmt::format("{}", fmt::join(lines, "\n"));
}

Collected unasked(const char *why) {
    Collected found;
    for (const emm_context *context : oldest_first()) {
        found.contexts.push_back(identify(*context));
        found.contexts.back().problem = why;
    }
    return found;
}

} // namespace

// In steps, by the clock that the thread sanitizer knows; another clock tells whether it is time.
bool Collector::wait(std::unique_lock<std::mutex> &lock, int64_t until) {
    while (is_busy_ && sockets::now() < until) {
        answered_.wait_until(lock,
                             std::chrono::system_clock::now() + std::chrono::milliseconds(20));
    }
    return !is_busy_;
}

// With the mutex held. False: there is no thread to be had.
bool Collector::begin(Wish wish) {
    if (!has_thread_ && !sockets::start_thread("emm-top-ask", [this] { run(); })) {
        return false;
    }
    has_thread_ = true;
    is_busy_ = true;
    wish_ = wish;
    since_ = sockets::now();
    found_ = {};
    asked_.notify_one();
    return true;
}

Collected Collector::collect(Wish wish, int64_t timeout) {
    std::unique_lock lock(mutex_);
    if (has_ended_) {
        return unasked("the process ends");
    }
    if (!is_busy_ && !begin(wish)) {
        return unasked("there is no thread to be had that could ask the plugin");
    }
    wait(lock, since_ + timeout);
    Collected found = found_;
    found.stuck = is_busy_ ? sockets::now() - since_ : 0;
    return found;
}

void Collector::end(int64_t timeout) noexcept {
    std::unique_lock lock(mutex_);
    has_ended_ = true;
    wait(lock, sockets::now() + timeout);
}

void Collector::run() noexcept {
    for (;;) {
        Wish wish;
        {
            std::unique_lock lock(mutex_);
            asked_.wait(lock, [this] { return is_busy_; });
            wish = wish_;
        }
        try {
            work(wish);
        } catch (const std::exception &error) {
            observe::log(EMM_LOG_WARN, "emm top is answered in part: {}", error.what());
        }
        const std::lock_guard lock(mutex_);
        is_busy_ = false;
        answered_.notify_all();
    }
}

void Collector::work(Wish wish) {
    for (emm_context *context : oldest_first()) {
        work_on(*context);
    }
    if (wish == Wish::report) {
        std::string report = write_report();
        const std::lock_guard lock(mutex_);
        found_.report = std::move(report);
    }
}

void Collector::work_on(emm_context &context) {
    ContextFigures figures = identify(context);
    {
        const std::lock_guard lock(mutex_);
        if (has_ended_) {
            return;
        }
        found_.contexts.push_back(figures);
    }
    ask(context, figures);
    const std::lock_guard lock(mutex_);
    found_.contexts.back() = std::move(figures);
}

} // namespace emm::monitor
