// A lock that is mostly held for some nanoseconds: half the cost of a std::mutex where no other
// thread wants it, since letting go of it is a plain store. It fits std::lock_guard.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace emm::run {

class SpinLock {
public:
    void lock() {
        for (int round = 0; taken_.exchange(true, std::memory_order_acquire); round++) {
            if (round < 100) {
                std::this_thread::yield();
            } else { // the holder may have a lower priority, and long work to do
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            }
        }
    }
    void unlock() { taken_.store(false, std::memory_order_release); }

private:
    std::atomic<bool> taken_{false};
};

} // namespace emm::run
