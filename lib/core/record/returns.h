#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace emm::core {

// The flushes and trims of one context that are under way. What they have taken is in no queue and
// no cache any more, and not free before they end: a request that memory ran out for waits for
// those that other threads have begun.
class Returns {
public:
    // One flush or trim, from before it takes anything.
    class Scope {
    public:
        explicit Scope(Returns &returns) noexcept;
        ~Scope();
        Scope(const Scope &) = delete;
        Scope &operator=(const Scope &) = delete;

    private:
        friend class Returns;
        Returns &returns_;
        const bool entered_; // false: this is a forked child
        uint64_t number_ = 0;
        Scope *next_ = nullptr; // begun before this one
    };

    // The wait has an end: what a flush runs, a finalizer or a plugin's free, may need a lock that
    // the caller's thread holds. A free in the driver, which may wait for a kernel, takes less.
    static constexpr std::chrono::milliseconds longest_wait{4000};

    // True when all that had begun have ended. False where the time is up, and at once for a thread
    // that is within a scope itself, of any context: no two threads wait for each other.
    bool wait_for_others(std::chrono::milliseconds at_most = longest_wait) noexcept;

    unsigned waiting() const; // threads

private:
    bool is_running_locked(uint64_t last) const;

    mutable std::mutex mutex_;
    std::condition_variable ended_;
    uint64_t begun_ = 0;
    unsigned waiting_ = 0;
    Scope *first_ = nullptr; // the last one begun
};

} // namespace emm::core
