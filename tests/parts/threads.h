// Threads that do the same work.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

// Runs `work` in `count` threads, which get their numbers, until all have ended; `meanwhile` runs
// in this thread.
inline void in_threads(
    size_t count, const std::function<void(size_t)> &work,
    const std::function<void()> &meanwhile = [] {}) {
    std::vector<std::thread> threads;
    for (size_t number = 0; number < count; number++) {
        threads.emplace_back(work, number);
    }
    meanwhile();
    for (std::thread &thread : threads) {
        thread.join();
    }
}

// The same. With `seconds` it sets `stop` after that time, unless it was set before.
inline void run_threads(size_t count, std::optional<size_t> seconds, std::atomic<bool> &stop,
                        const std::function<void(size_t)> &work) {
    in_threads(count, work, [&] {
        if (!seconds) {
            return;
        }
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(*seconds);
        while (!stop && std::chrono::steady_clock::now() < end) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        stop = true;
    });
}
