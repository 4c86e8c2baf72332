#pragma once

#include "observe/process.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace emm::core {

// Lets one thread at a time through while it calls into a plugin. Not a lock that is held: the
// thread inside is only remembered, so that its own second entry, from a plugin that calls back, is
// told from another thread's, which waits.
class Turnstile {
public:
    // False: this thread is inside already.
    bool enter() {
        std::unique_lock lock(mutex_);
        if (inside_ == std::this_thread::get_id()) {
            return false;
        }
        left_.wait(lock, [this] { return inside_ == std::thread::id(); });
        inside_ = std::this_thread::get_id();
        return true;
    }

    // Without waiting. False: a thread is inside, perhaps this one.
    bool try_enter() {
        std::lock_guard lock(mutex_);
        if (inside_ != std::thread::id()) {
            return false;
        }
        inside_ = std::this_thread::get_id();
        return true;
    }

    // A child that was forked from within has no thread to let in, and the lock may be one's that
    // is not here.
    void leave() {
        if (observe::is_forked_child()) {
            return;
        }
        {
            std::lock_guard lock(mutex_);
            inside_ = std::thread::id();
        }
        left_.notify_one();
    }

private:
    std::mutex mutex_;
    std::condition_variable left_;
    std::thread::id inside_;
};

// Through a turnstile for a scope.
class Passage {
public:
    explicit Passage(Turnstile &turnstile) : turnstile_(turnstile), entered_(turnstile.enter()) {}
    Passage(Turnstile &turnstile, std::try_to_lock_t)
        : turnstile_(turnstile), entered_(turnstile.try_enter()) {}
    ~Passage() {
        if (entered_) {
            turnstile_.leave();
        }
    }
    Passage(const Passage &) = delete;
    Passage &operator=(const Passage &) = delete;
    bool entered() const { return entered_; }

private:
    Turnstile &turnstile_;
    const bool entered_;
};

} // namespace emm::core
