// A lock that is held for some nanoseconds: half the cost of a std::mutex where no other thread
// wants it, since letting go of it is a plain store. It fits std::lock_guard.
#pragma once

#include <atomic>
#include <thread>

namespace emm::run {

class SpinLock {
public:
    void lock() {
        while (taken_.exchange(true, std::memory_order_acquire)) {
            std::this_thread::yield();
        }
    }
    void unlock() { taken_.store(false, std::memory_order_release); }

private:
    std::atomic<bool> taken_{false};
};

} // namespace emm::run
