#include "replay/player.h"
#include "threads.h"

#include <atomic>
#include <exception>
#include <mutex>

namespace emm::tool {
namespace {

// Consecutive events of one thread.
struct ThreadRun {
    uint16_t thread = 0;
    size_t begin = 0, end = 0;
};

std::vector<ThreadRun> runs_of(const Trace &trace) {
    std::vector<ThreadRun> runs;
    for (size_t i = 0; i < trace.events.size(); i++) {
        const uint16_t thread = trace.events[i].thread;
        if (runs.empty() || runs.back().thread != thread) {
            runs.push_back({thread, i, i});
        }
        runs.back().end = i + 1;
    }
    return runs;
}

// Keeps the first exception of several threads. Afterwards no event is played, but every thread
// still goes through its events, so that no thread waits for ever.
class FirstException {
public:
    template <class Function> void attempt(Function function) {
        if (broken_.load(std::memory_order_relaxed)) {
            return;
        }
        try {
            function();
        } catch (...) {
            const std::lock_guard lock(mutex_);
            first_ = first_ ? first_ : std::current_exception();
            broken_ = true;
        }
    }
    void rethrow() const {
        if (first_) {
            std::rethrow_exception(first_);
        }
    }

private:
    std::atomic<bool> broken_{false};
    std::mutex mutex_;
    std::exception_ptr first_;
};

// The members that both orders use.
struct Playing {
    const Trace &trace_;
    Players &players_;
    Session &session_;
    const Hooks &hooks_;
    FirstException first_exception_;
};

class Strict : Playing {
public:
    Strict(const Trace &trace, Players &players, Session &session, const Hooks &hooks)
        : Playing{trace, players, session, hooks, {}}, runs_(runs_of(trace)),
          turns_(new std::atomic<size_t>[trace.threads]()) {}

    void play() {
        if (trace_.threads == 1) {
            first_exception_.attempt([&] { play_run(runs_.front()); });
        } else {
            turns_[runs_.front().thread] = 1;
            on_threads(trace_.threads, [this](uint32_t thread) { play_thread(thread); });
        }
        first_exception_.rethrow();
    }

private:
    // turns_[t] is one more than the index of the last run that thread t may begin.
    void play_thread(uint32_t thread) {
        first_exception_.attempt([&] { session_.enter(); });
        for (size_t i = 0; i < runs_.size(); i++) {
            if (runs_[i].thread != thread) {
                continue;
            }
            for (size_t turn; (turn = turns_[thread].load(std::memory_order_acquire)) < i + 1;) {
                turns_[thread].wait(turn, std::memory_order_acquire);
            }
            first_exception_.attempt([&] { play_run(runs_[i]); });
            if (i + 1 < runs_.size()) {
                std::atomic<size_t> &next = turns_[runs_[i + 1].thread];
                next.store(i + 2, std::memory_order_release);
                next.notify_one();
            }
        }
    }

    void play_run(const ThreadRun &run) {
        Player &player = *players_[run.thread];
        for (size_t i = run.begin; i < run.end; i++) {
            if (i == trace_.events.size() / 2) {
                hooks_.middle();
            }
            if (hooks_.before) {
                hooks_.before(trace_.events[i]);
            }
            player.play(trace_.events[i], i);
            hooks_.ended(run.thread);
        }
    }

    const std::vector<ThreadRun> runs_;
    std::unique_ptr<std::atomic<size_t>[]> turns_;
};

class Free : Playing {
public:
    Free(const Trace &trace, Players &players, Session &session, const Hooks &hooks)
        : Playing{trace, players, session, hooks, {}}, own_(trace.threads),
          first_halves_(trace.threads) {
        for (size_t i = 0; i < trace.events.size(); i++) {
            own_[trace.events[i].thread].push_back(i);
        }
    }

    void play() {
        on_threads(trace_.threads, [this](uint32_t thread) { play_thread(thread); });
        first_exception_.rethrow();
    }

private:
    void play_thread(uint32_t thread) {
        first_exception_.attempt([&] { session_.enter(); });
        const std::vector<size_t> &events = own_[thread];
        for (size_t done = 0; done < events.size(); done++) {
            if (done == events.size() / 2 && --first_halves_ == 0) {
                first_exception_.attempt([&] { hooks_.middle(); });
            }
            play_event(thread, events[done]);
            hooks_.ended(static_cast<uint16_t>(thread));
        }
    }

    void play_event(uint32_t thread, size_t number) {
        const Event &event = trace_.events[number];
        first_exception_.attempt([&] { players_[thread]->play(event, number); });
        Block &block = session_.block(event.block);
        if (event.op == Op::alloc && block.address() == Block::pending) {
            block.publish(Block::failed); // not played: the thread that frees it must not wait
        }
    }

    std::vector<std::vector<size_t>> own_; // numbers of each thread's events
    std::atomic<uint32_t> first_halves_;   // threads that have not reached their middle
};

} // namespace

void play_strictly(const Trace &trace, Players &players, Session &session, const Hooks &hooks) {
    Strict(trace, players, session, hooks).play();
}

void play_freely(const Trace &trace, Players &players, Session &session, const Hooks &hooks) {
    Free(trace, players, session, hooks).play();
}

} // namespace emm::tool
