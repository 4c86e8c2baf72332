#include "schedule.h"

#include "call.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

namespace simcuda {

void Schedule::configure(const Options &options) {
    progress_ = options.progress;
    duration_ = std::chrono::microseconds(options.duration);
    random_.seed(options.seed);
}

OpRef Schedule::add(std::function<void()> run, bool outside, const std::vector<OpRef> &before,
                    Duration duration) {
    auto op = std::make_shared<Op>();
    op->run = std::move(run);
    op->outside = outside;
    op->due = std::chrono::steady_clock::now();
    for (const OpRef &each : before) {
        if (each && !each->done()) {
            op->due = std::max(op->due, each->due);
            op->before.push_back(each);
            each->after.push_back(op);
        }
    }
    op->due += duration.value_or(op->run ? duration_ : std::chrono::microseconds(0));
    ++pending_;
    op->unmet = op->before.size();
    if (op->unmet == 0) {
        op->state = Op::State::ready;
        ready_.push_back(op);
    }
    return op;
}

void Schedule::run(const OpRef &op) {
    op->state = Op::State::running;
    if (op->run && op->outside) {
        mutex_.unlock();
        const bool outer = std::exchange(this_thread.in_callback, true);
        op->run();
        this_thread.in_callback = outer;
        mutex_.lock();
    } else if (op->run) {
        op->run();
    }
    finish(op);
}

void Schedule::run_unawaited(const OpRef &op) {
    if (!op->run || !op->outside) {
        return run(op);
    }
    op->state = Op::State::running;
    try {
        std::thread([this, op] {
            const std::lock_guard lock(mutex_);
            run(op);
        }).detach();
    } catch (const std::system_error &) {
        return run(op);
    }
    ++waiting_;
    finished_.wait_for(mutex_, std::chrono::seconds(1), [&] { return op->done(); });
    --waiting_;
}

void Schedule::finish(const OpRef &op) {
    op->state = Op::State::done;
    op->finished = std::chrono::steady_clock::now();
    op->run = nullptr;
    --pending_;
    for (const OpRef &each : op->after) {
        if (--each->unmet == 0) {
            each->state = Op::State::ready;
            ready_.push_back(each);
        }
    }
    op->after.clear();
    op->before.clear();
    finished_.notify_all();
}

OpRef Schedule::take_ready(size_t index) {
    std::swap(ready_[index], ready_.front());
    OpRef op = std::move(ready_.front());
    ready_.pop_front();
    return op;
}

// Drops work that has run in a wait of the program but is still listed.
void Schedule::drop_finished() {
    if (ready_.size() > 2 * pending_ + 64) {
        std::erase_if(ready_, [](const OpRef &op) { return op->state != Op::State::ready; });
    }
}

void Schedule::advance() {
    drop_finished();
    while (progress_ == Progress::eager && !ready_.empty()) {
        const OpRef op = take_ready(0);
        if (op->state == Op::State::ready) {
            run(op);
        }
    }
}

void Schedule::toss() {
    while (progress_ == Progress::random && !ready_.empty() && coin()) {
        const OpRef op = take_ready(random_() % ready_.size());
        if (op->state == Op::State::ready) {
            run_unawaited(op);
        }
    }
}

bool Schedule::query(const OpRef &op) {
    if (!op || op->done()) {
        return true;
    }
    return is_due(*op) && complete(op, false);
}

bool Schedule::is_due(Op &op) {
    switch (progress_) {
    case Progress::eager:
        return false;
    case Progress::lazy:
        return std::exchange(op.asked, true);
    case Progress::random:
        return coin();
    case Progress::timed:
        return std::chrono::steady_clock::now() >= op.due;
    }
    return false;
}

void Schedule::wait(const OpRef &op) {
    complete(op, true);
}

bool Schedule::complete(const OpRef &op, bool may_wait) {
    std::vector<OpRef> chain;
    if (op) {
        chain.push_back(op);
    }
    while (!chain.empty()) {
        const OpRef last = chain.back();
        const auto pending = std::find_if(last->before.begin(), last->before.end(),
                                          [](const OpRef &each) { return !each->done(); });
        if (last->done()) {
            chain.pop_back();
        } else if (last->state == Op::State::ready) {
            may_wait ? run(last) : run_unawaited(last);
        } else if (pending != last->before.end()) {
            const OpRef next = *pending;
            chain.push_back(next);
        } else if (may_wait) {
            ++waiting_;
            finished_.wait(mutex_); // another thread is running the work
            --waiting_;
        } else {
            return false;
        }
    }
    return true;
}

} // namespace simcuda
