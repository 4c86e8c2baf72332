#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace emm::common {

// Threads that are giving back memory which was freed earlier. Such memory is in no list, but is
// free only when the thread is done. If memory has run out, a request waits for these threads.
class Returns {
public:
    // While it lives, its thread gives memory back. It begins before the memory is taken out.
    class Scope {
    public:
        explicit Scope(Returns &returns) noexcept : returns_(returns) {
            const std::lock_guard lock(returns_.mutex_);
            number_ = ++returns_.begun_;
            next_ = returns_.first_;
            returns_.first_ = this;
        }
        ~Scope() {
            const std::lock_guard lock(returns_.mutex_);
            Scope **place = &returns_.first_;
            while (*place != this) {
                place = &(*place)->next_;
            }
            *place = next_;
            returns_.ended_.notify_all();
        }
        Scope(const Scope &) = delete;
        Scope &operator=(const Scope &) = delete;

    private:
        friend class Returns;
        Returns &returns_;
        uint64_t number_ = 0;
        Scope *next_ = nullptr; // begun before this one
    };

    // Waits for the scopes that have begun; not in a scope. The wait is bounded, because the device
    // may be waiting for the calling thread, and a scope for the device.
    void wait() {
        std::unique_lock lock(mutex_);
        ended_.wait_for(lock, std::chrono::seconds(4), [this, last = begun_] {
            const Scope *oldest = first_;
            while (oldest && oldest->number_ > last) {
                oldest = oldest->next_;
            }
            return !oldest;
        });
    }

private:
    std::mutex mutex_;
    std::condition_variable ended_;
    uint64_t begun_ = 0;
    Scope *first_ = nullptr; // the last one begun
};

} // namespace emm::common
