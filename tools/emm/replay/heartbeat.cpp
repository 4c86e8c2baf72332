#include "replay/heartbeat.h"

#include "clock.h"
#include "trace/trace.h"

#include <algorithm>
#include <chrono>
#include <ctime>

namespace emm::tool {
namespace {

constexpr double longest_step = 30 * 60; // seconds, for a step that computes
constexpr auto between_beats = std::chrono::milliseconds(200);

double processor_seconds() {
    timespec used = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

} // namespace

bool is_at_work(const Effort &before, const Effort &now, double seconds, double seconds_in_step) {
    const bool computes = now.processor_seconds - before.processor_seconds >= seconds / 10;
    return now.steps != before.steps || (computes && seconds_in_step < longest_step);
}

Heartbeat::Heartbeat(Parent &parent)
    : parent_(parent), counts_(most_threads), thread_([this] { beat(); }) {}

Heartbeat::~Heartbeat() {
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
    }
    stopping_.notify_one();
    thread_.join();
}

Effort Heartbeat::effort() const {
    Effort effort;
    for (const Count &count : counts_) {
        effort.steps += count.steps.load(std::memory_order_relaxed);
    }
    effort.processor_seconds = processor_seconds();
    return effort;
}

void Heartbeat::beat() {
    Effort before = effort();
    double then = seconds_now(), step_began = then;
    std::unique_lock lock(mutex_);
    while (!stopping_.wait_for(lock, between_beats, [this] { return stopped_; })) {
        const Effort now = effort();
        const double time = seconds_now();
        step_began = now.steps == before.steps ? step_began : time;
        if (is_at_work(before, now, time - then, time - step_began)) {
            const uint64_t expected = std::max<uint64_t>(expected_steps_, 1); // 0: not known yet
            parent_.progress(static_cast<double>(now.steps) / static_cast<double>(expected));
        }
        before = now;
        then = time;
    }
}

} // namespace emm::tool
