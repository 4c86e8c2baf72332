#include "biased_lock.h"

#include "fence/asymmetric_fence.h"

#include <sched.h>

namespace emm::pool {

std::atomic<bool> BiasedLock::fenced_{true};

void BiasedLock::prepare() {
    static const bool registered = [] {
        const bool done = register_asymmetric_fence();
        fenced_.store(!done, std::memory_order_relaxed);
        return done;
    }();
    static_cast<void>(registered);
}

// Afterwards, for every other thread: its `inside` is visible here, or it sees that the lock is
// closed. If the kernel refuses (a sandbox that begins after the start), owners are brought to rest
// by other means, once; their locks then open again as fenced ones.
int BiasedLock::fence_owners() {
    const int refused = asymmetric_fence();
    if (refused == 0) {
        return 0;
    }
    const bool known = fenced_.exchange(true, std::memory_order_seq_cst);
    slow_asymmetric_fence();
    return known ? 0 : refused;
}

void BiasedLock::await_owner() const {
    while (inside_.load(std::memory_order_seq_cst) != 0) {
        sched_yield();
    }
}

} // namespace emm::pool
