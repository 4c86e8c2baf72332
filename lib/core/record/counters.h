#pragma once

#include <atomic>
#include <cstdint>

namespace emm::core {

// Rare events, counted for emm_get_counters.
struct Counters {
    std::atomic<uint64_t> late_frees{0}, flushes{0}, failed_deferred{0}, dropped{0},
        memory_retries{0};
};

inline Counters &counters() {
    static Counters the_counters;
    return the_counters;
}

} // namespace emm::core
