#include "fence/asymmetric_fence.h"

#include <cerrno>
#include <chrono>
#include <linux/membarrier.h>
#include <memory>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace emm {
namespace {

int membarrier(int command) noexcept {
    return syscall(SYS_membarrier, command, 0, 0) == 0 ? 0 : errno;
}

constexpr int most_processors = 8192;

struct FreeProcessors {
    void operator()(cpu_set_t *set) const { CPU_FREE(set); }
};
using Processors = std::unique_ptr<cpu_set_t, FreeProcessors>;

// False if the thread cannot choose its processor.
bool visit_processors() noexcept {
    const size_t bytes = CPU_ALLOC_SIZE(most_processors);
    const Processors usual(CPU_ALLOC(most_processors)), one(CPU_ALLOC(most_processors));
    if (!usual || !one || sched_getaffinity(0, bytes, usual.get()) != 0) {
        return false;
    }
    const long count = sysconf(_SC_NPROCESSORS_CONF);
    bool visited = false;
    for (int processor = 0; processor < count && processor < most_processors; ++processor) {
        CPU_ZERO_S(bytes, one.get());
        CPU_SET_S(processor, bytes, one.get());
        const bool there = sched_setaffinity(0, bytes, one.get()) == 0;
        // EINVAL: no thread of this process may run on that processor.
        if (!there && errno != EINVAL) {
            visited = false;
            break;
        }
        visited = visited || there;
    }
    sched_setaffinity(0, bytes, usual.get());
    return visited;
}

} // namespace

bool register_asymmetric_fence() noexcept {
    return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

int asymmetric_fence() noexcept {
    return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void slow_asymmetric_fence() noexcept {
    if (!visit_processors()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

} // namespace emm
