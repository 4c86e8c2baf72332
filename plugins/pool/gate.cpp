#include "gate.h"

#include <cerrno>
#include <chrono>
#include <linux/membarrier.h>
#include <memory>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
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

// Afterwards every thread of the process either has its `inside` seen or sees `shut`. The kernel
// may stop doing that at any time (a sandbox that begins after the start). Then gates that were
// open plainly are brought to rest by other means, once: they open again as fenced ones.
int Gate::see_everywhere() {
    int error = 0;
    if (!fenced_.load(std::memory_order_relaxed)) {
        if (syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0) {
            return 0;
        }
        error = errno;
        error = fenced_.exchange(true, std::memory_order_seq_cst) ? 0 : error;
    }
    if (!run_everywhere()) {
        // What is left is time: a store leaves its processor's buffer within microseconds, and a
        // thread that is away from its processor has none there.
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return error;
}

// Runs this thread on each processor that the process may use: whatever ran there before has been
// switched out, which is a barrier, or has not begun to run. False if that is refused as well.
bool Gate::run_everywhere() {
    constexpr int processors = 8192;
    const size_t bytes = CPU_ALLOC_SIZE(processors);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t *)> usual(
        CPU_ALLOC(processors), [](cpu_set_t *set) { CPU_FREE(set); });
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t *)> one(
        CPU_ALLOC(processors), [](cpu_set_t *set) { CPU_FREE(set); });
    if (!usual || !one || sched_getaffinity(0, bytes, usual.get()) != 0) {
        return false;
    }
    const long count = sysconf(_SC_NPROCESSORS_CONF);
    bool ran = false;
    for (int processor = 0; processor < count && processor < processors; processor++) {
        CPU_ZERO_S(bytes, one.get());
        CPU_SET_S(processor, bytes, one.get());
        const bool there = sched_setaffinity(0, bytes, one.get()) == 0;
        if (!there && errno != EINVAL) { // EINVAL: no thread of this process may run there
            ran = false;
            break;
        }
        ran = ran || there;
    }
    sched_setaffinity(0, bytes, usual.get());
    return ran;
}

void Gate::await_owner() const {
    while (inside_.load(std::memory_order_seq_cst) != 0) {
        sched_yield();
    }
}

} // namespace emm::pool
