#include "check/traffic.h"

#include "check/gpu.h"

#include <atomic>
#include <cstdint>
#include <fmt/format.h>

namespace emm::tool::check {
namespace {

std::atomic<uint64_t> allocated{0}, freed{0};

uint64_t device_memory() {
    size_t free = 0, total = 0;
    return driver_calls().cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? total : UINT64_MAX;
}

} // namespace

void count_allocated(size_t size) {
    allocated += size;
}

void count_freed(size_t size) {
    freed += size;
}

std::string why_out_of_memory() {
    const uint64_t gone = freed, live = allocated - gone;
    if (gone < device_memory() / 2 || live > gone) {
        return "";
    }
    return fmt::format(" (the suite has freed {} bytes before and has {} live: does memfree give "
                       "memory back, or use it again?)",
                       gone, live);
}

} // namespace emm::tool::check
