#pragma once

#include "child.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace emm::tool {

// The progress of a process: its completed steps, and its processor time.
struct Effort {
    uint64_t steps = 0;
    double processor_seconds = 0;
};

// Whether a process is at work: a step has ended since `before`, or the process has computed for a
// tenth of the time. A process that waits for ever does neither. After half an hour in one step,
// computing no longer counts.
bool is_at_work(const Effort &before, const Effort &now, double seconds, double seconds_in_step);

// A thread that tells the parent the progress at fixed intervals. So the parent knows that the work
// goes on, even if a step takes long.
class Heartbeat {
public:
    explicit Heartbeat(Parent &parent);
    ~Heartbeat();
    Heartbeat(const Heartbeat &) = delete;
    Heartbeat &operator=(const Heartbeat &) = delete;

    void expect(uint64_t steps) { expected_steps_ = steps; }

    // Each thread counts its own steps, so that counting does not disturb other threads.
    void count(uint16_t thread) noexcept {
        std::atomic<uint64_t> &steps = counts_[thread].steps;
        steps.store(steps.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }

private:
    struct alignas(64) Count {
        std::atomic<uint64_t> steps{0};
    };

    Effort effort() const;
    void beat();

    Parent &parent_;
    std::atomic<uint64_t> expected_steps_{0};
    std::vector<Count> counts_; // of as many threads as a trace may have
    std::mutex mutex_;
    std::condition_variable stopping_;
    bool stopped_ = false;
    std::thread thread_;
};

} // namespace emm::tool
