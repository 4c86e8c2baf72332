// A lock that is mostly held for some nanoseconds, for std::lock_guard. Uncontended, it costs half
// as much as a std::mutex, because unlocking is a plain store. It is no cancellation point, as
// nanosleep() would be. libemm and libemm-run use it.
#pragma once

#include <atomic>
#include <ctime>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace emm {

class SpinLock {
public:
    void lock() noexcept {
        if (taken_.exchange(true, std::memory_order_acquire)) [[unlikely]] {
            wait();
        }
    }
    void unlock() noexcept { taken_.store(false, std::memory_order_release); }

private:
    [[gnu::noinline, gnu::cold]] void wait() noexcept {
        constexpr int most_yields = 100;
        for (int round = 0; taken_.exchange(true, std::memory_order_acquire); round++) {
            if (round < most_yields) {
                sched_yield();
            } else { // the holder may have a lower priority, and a long task
                const timespec pause = {0, 50'000};
                syscall(SYS_nanosleep, &pause, nullptr);
            }
        }
    }

    std::atomic<bool> taken_{false};
};

} // namespace emm
