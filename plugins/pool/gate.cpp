#include "gate.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace emm::pool {

std::atomic<bool> Gate::fenced_{true};

void Gate::prepare() {
    static const bool done = [] {
        const long result = syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0);
        fenced_.store(result != 0, std::memory_order_relaxed);
        return true;
    }();
    static_cast<void>(done);
}

// Afterwards every thread of the process either has its `inside` seen or sees `shut`.
void Gate::see_everywhere() {
    if (!fenced_.load(std::memory_order_relaxed)) {
        syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0);
    }
}

void Gate::await_owner() const {
    while (inside_.load(std::memory_order_seq_cst) != 0) {
        sched_yield();
    }
}

} // namespace emm::pool
