#pragma once

#include "options.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

namespace simcuda {

// A piece of work on a stream. It runs when its predecessors are done.
struct Op {
    enum class State { waiting, ready, running, done };
    std::function<void()> run; // or nothing
    bool outside = false;      // runs without the simulator's lock: code of the program
    State state = State::waiting;
    bool asked = false; // a query found it pending
    size_t unmet = 0;
    std::vector<std::shared_ptr<Op>> before;
    std::vector<std::shared_ptr<Op>> after;
    std::chrono::steady_clock::time_point due; // for timed work: when a query finds it done
    std::chrono::steady_clock::time_point finished;

    bool done() const { return state == State::done; }
};

using OpRef = std::shared_ptr<Op>;

// Runs work inside the calls that put it there, that query or that wait. A host function within a
// call that does not wait has a thread of its own: if the function waits for another thread, the
// call returns without waiting for the function. The simulator is locked in every call.
class Schedule {
public:
    explicit Schedule(std::mutex &mutex) : mutex_(mutex) {}
    void configure(const Options &options);

    // `duration`: for timed work, a time other than the set one.
    using Duration = std::optional<std::chrono::microseconds>;
    OpRef add(std::function<void()> run, bool outside, const std::vector<OpRef> &before,
              Duration duration = {});

    // With progress=eager, advance() runs all work that can run. With progress=random, toss() runs
    // work by chance. Otherwise both run nothing.
    void advance();
    void toss();

    // Whether the work is done. With progress=lazy the query makes it run.
    bool query(const OpRef &op);
    void wait(const OpRef &op);

    size_t pending() const { return pending_; }
    size_t waiting() const { return waiting_; } // threads, for work of another thread

private:
    void run(const OpRef &op);
    void run_unawaited(const OpRef &op);
    bool complete(const OpRef &op, bool may_wait);
    void finish(const OpRef &op);
    OpRef take_ready(size_t index);
    void drop_finished();
    bool coin() { return random_() & 1; }
    bool is_due(Op &op);

    std::mutex &mutex_;
    std::condition_variable_any finished_;
    Progress progress_ = Progress::eager;
    std::chrono::microseconds duration_{0};
    std::mt19937_64 random_;
    std::deque<OpRef> ready_;
    size_t pending_ = 0, waiting_ = 0;
};

} // namespace simcuda
