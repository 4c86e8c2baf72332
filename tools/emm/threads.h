#pragma once

#include "problem.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace emm::tool {

// Starts the thread `number` of `count`. Throws Failure.
template <class Body> std::thread start_thread(size_t number, size_t count, Body body) {
    try {
        return std::thread(std::move(body));
    } catch (const std::exception &error) { // std::system_error or std::bad_alloc
        throw Failure({.code = EMM_E_OUT_OF_HOST_MEMORY,
                       .stage = "run",
                       .message = "cannot start thread " + std::to_string(number + 1) + " of " +
                                  std::to_string(count) + ": " + error.what()});
    }
}

// Runs body(number) on so many threads, once all of them have started. Throws Failure if a thread
// cannot be started; then `body` has not run.
template <class Body> void on_threads(unsigned count, const Body &body) {
    enum { waiting, going, cancelled };
    std::atomic<int> state{waiting};
    std::vector<std::thread> threads;
    threads.reserve(count);
    const auto end = [&](int how) {
        state = how;
        state.notify_all();
        for (std::thread &thread : threads) {
            thread.join();
        }
    };
    const auto live = [&](unsigned number) {
        state.wait(waiting);
        if (state == going) {
            body(number);
        }
    };
    try {
        for (unsigned number = 0; number < count; number++) {
            threads.push_back(start_thread(number, count, [&live, number] { live(number); }));
        }
    } catch (...) {
        end(cancelled);
        throw;
    }
    end(going);
}

} // namespace emm::tool
