#include "helper_thread.h"

#include <csignal>
#include <pthread.h>

namespace emm::run {
namespace {

// A request to cancel this thread waits: a call of CUDA is no place to end in.
class CancelledLater {
public:
    CancelledLater() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~CancelledLater() { pthread_setcancelstate(before_, nullptr); }
    CancelledLater(const CancelledLater &) = delete;
    CancelledLater &operator=(const CancelledLater &) = delete;

private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

} // namespace

bool HelperThread::run(const Work &work) {
    const CancelledLater cancelled_later;
    const auto deadline = std::chrono::steady_clock::now() + at_most_;
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return state_ == State::idle || given_up_; });
    if (state_ != State::idle || closed_) {
        return false;
    }
    work_ = work;
    if (!start()) {
        return false;
    }
    state_ = State::asked;
    given_up_ = false;
    const uint64_t own = ++turn_;
    if (!changed_.wait_until(lock, deadline, [&] { return ended_turn_ >= own; })) {
        given_up_ = true;
        changed_.notify_all();
    }
    return worked_turn_ >= own;
}

void HelperThread::close(std::chrono::milliseconds at_most) noexcept {
    const CancelledLater cancelled_later;
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.wait_for(lock, at_most, [&] { return state_ == State::idle; });
}

// Starts without signals: the program's signals are for its own threads. The mutex is held.
bool HelperThread::start() noexcept {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread = {};
    const bool started = pthread_create(&thread, nullptr, &main, this) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (started) {
        pthread_detach(thread);
    }
    return started;
}

void *HelperThread::main(void *self) {
    static_cast<HelperThread *>(self)->serve();
    return nullptr;
}

void HelperThread::serve() {
    const int taken = outer_.take();
    if (const Work work = begin()) {
        work();
    }
    outer_.release(taken);
    end();
}

// The work to do, if the caller still waits for it.
HelperThread::Work HelperThread::begin() {
    const std::lock_guard lock(mutex_);
    if (given_up_ || closed_) {
        return {};
    }
    state_ = State::working;
    worked_turn_ = turn_;
    return std::move(work_);
}

void HelperThread::end() {
    const std::lock_guard lock(mutex_);
    state_ = State::idle;
    ended_turn_ = turn_;
    changed_.notify_all();
}

} // namespace emm::run
