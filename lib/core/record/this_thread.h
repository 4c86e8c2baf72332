#pragma once

#include <emm/plugin.h>

#include <atomic>
#include <cstdint>
#include <pthread.h>

namespace emm::core {

struct EpochSlot;

// State of the thread for calls by a handle. Trivial, so that an ending thread may still release a
// handle; initial-exec, because a look at it must not be a function call.
struct ThisThread {
    uint32_t number = 0;             // 1 and up; 0: not given yet
    uint32_t depth = 0;              // calls by handles that this thread is inside of
    EpochSlot *epoch_slot = nullptr; // the thread's own; NULL: not given yet
    bool is_counted = false;         // never gets a slot
    uint32_t returning = 0;          // scopes of Returns that this thread is inside of
    // This thread is inside a call that makes, resets or ends this context's manager.
    const emm_context *managing = nullptr;
};

[[gnu::tls_model("initial-exec")]] inline constinit thread_local ThisThread this_thread;

[[gnu::noinline, gnu::cold]] inline void number_this_thread() noexcept {
    static std::atomic<uint32_t> last{0};
    this_thread.number = ++last;
}

inline uint32_t thread_number() noexcept {
    if (this_thread.number == 0) [[unlikely]] {
        number_this_thread();
    }
    return this_thread.number;
}

// While such an object lives, a request to cancel this thread (pthread_cancel) waits, so no
// half-done work is unwound. Costs 8 ns.
class Uncancelled {
public:
    Uncancelled() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
    Uncancelled(const Uncancelled &) = delete;
    Uncancelled &operator=(const Uncancelled &) = delete;

private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

} // namespace emm::core
