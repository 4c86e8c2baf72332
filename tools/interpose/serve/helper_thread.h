// Work that needs a lock which may come late, for callers that wait for a bounded time only. A
// thread of its own takes the lock and works. Any thread may call.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace emm::run {

// The helper thread calls both functions without a mutex held.
struct OuterLock {
    int (*take)(); // may wait for any time, and may end the calling thread
    void (*release)(int taken);
};

class HelperThread {
public:
    using Work = std::function<void()>; // does not throw, but the thread may be ended within it

    HelperThread(const OuterLock &outer, std::chrono::milliseconds at_most)
        : outer_(outer), at_most_(at_most) {}

    // Has the work done, one piece at a time, and waits for its end, `at_most` in all. True: the
    // work has begun, and may have ended. False: the work never begins, because the lock did not
    // come in time, earlier work still goes on that its caller has given up, there is no thread, or
    // close() was called. Throws std::bad_alloc.
    bool run(const Work &work);

    // No work begins from now on. Waits `at_most` for work that has begun. The caller does not hold
    // the outer lock.
    void close(std::chrono::milliseconds at_most) noexcept;

private:
    enum class State { idle, asked, working };

    static void *main(void *self);
    bool start() noexcept;
    void serve();
    Work begin();
    void end();

    const OuterLock outer_;
    const std::chrono::milliseconds at_most_;
    std::mutex mutex_;
    std::condition_variable changed_;
    State state_ = State::idle;
    Work work_;
    bool given_up_ = false; // by the caller of run, for the turn that has not ended
    bool closed_ = false;
    uint64_t turn_ = 0;        // the last turn that was asked for
    uint64_t ended_turn_ = 0;  // all turns up to this one have ended
    uint64_t worked_turn_ = 0; // the last of which the work has begun
};

} // namespace emm::run
