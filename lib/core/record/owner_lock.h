#pragma once

#include "observe/error.h"
#include "observe/process.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace emm::core {

// A lock that remembers its owner, for calls into a plugin. If a plugin calls back and its thread
// locks again, the lock refuses; other threads wait. No mutex is held meanwhile.
class OwnerLock {
public:
    // False: this thread is the owner already.
    bool lock() {
        std::unique_lock lock(mutex_);
        if (owner_ == std::this_thread::get_id()) {
            return false;
        }
        released_.wait(lock, [this] { return owner_ == std::thread::id(); });
        owner_ = std::this_thread::get_id();
        return true;
    }

    // Waits until then at most. False: a thread owns the lock, perhaps this one.
    bool lock_until(std::chrono::steady_clock::time_point then) {
        std::unique_lock lock(mutex_);
        if (!released_.wait_for(lock, then - std::chrono::steady_clock::now(),
                                [this] { return owner_ == std::thread::id(); })) {
            return false;
        }
        owner_ = std::this_thread::get_id();
        return true;
    }

    // Does not wait. False: a thread owns the lock, perhaps this one.
    bool try_lock() {
        std::lock_guard lock(mutex_);
        if (owner_ != std::thread::id()) {
            return false;
        }
        owner_ = std::this_thread::get_id();
        return true;
    }

    // In a forked child no thread waits, and a missing thread may hold the mutex.
    void unlock() {
        if (observe::is_forked_child()) {
            return;
        }
        {
            std::lock_guard lock(mutex_);
            owner_ = std::thread::id();
        }
        released_.notify_one();
    }

private:
    std::mutex mutex_;
    std::condition_variable released_;
    std::thread::id owner_;
};

// Owns the lock for a scope, unless that was refused.
class OwnerGuard {
public:
    explicit OwnerGuard(OwnerLock &lock) : lock_(lock), owns_(lock.lock()) {}
    OwnerGuard(OwnerLock &lock, std::try_to_lock_t) : lock_(lock), owns_(lock.try_lock()) {}
    OwnerGuard(OwnerLock &lock, std::chrono::steady_clock::time_point until)
        : lock_(lock), owns_(lock.lock_until(until)) {}
    ~OwnerGuard() {
        if (owns_) {
            lock_.unlock();
        }
    }
    OwnerGuard(const OwnerGuard &) = delete;
    OwnerGuard &operator=(const OwnerGuard &) = delete;
    bool owns() const { return owns_; }
    // EMM_OK if this guard owns the lock; else `sentence` describes the second try.
    emm_status expect_owned(const char *sentence) const noexcept {
        return owns_ ? EMM_OK : observe::fail(EMM_E_REENTERED, 0, sentence);
    }

private:
    OwnerLock &lock_;
    const bool owns_;
};

} // namespace emm::core
