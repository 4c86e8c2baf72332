#pragma once

#include "bench/measurement.h"
#include "bench/works.h"

#include <memory>

namespace emm::tool {

// The sizes and counts of the cases that have their own.
constexpr size_t mixed_live = 10'000, mixed_smallest = 256, mixed_largest = size_t(4) << 10;
constexpr size_t large_live = 4'096, large_smallest = size_t(1) << 20,
                 large_largest = size_t(64) << 20;
constexpr size_t holes = 65'536;

template <class Memory> using RingOf = typename CrossWork<Memory>::Ring;

// The loop of `measurement` for one kind of memory, on one thread. `room`: bytes of memory that a
// live set may take; 0: there is enough.
template <class Memory>
std::unique_ptr<Work> make_work(const Measurement &measurement, Memory memory, uint32_t thread,
                                size_t room, const std::shared_ptr<RingOf<Memory>> &ring,
                                const std::atomic<bool> &stopping) {
    const size_t live = large_live / measurement.threads;
    if (measurement.name == "mixed") {
        return std::make_unique<ReplaceWork<Memory>>(memory, mixed_live, mixed_smallest,
                                                     mixed_largest, thread + 1);
    }
    if (measurement.name == "large") {
        constexpr size_t mean = size_t(16) << 20;
        const size_t fitting = room == 0 ? live : std::min(live, room / measurement.threads / mean);
        return std::make_unique<ReplaceWork<Memory>>(memory, std::max<size_t>(fitting, 1),
                                                     large_smallest, large_largest, thread + 1);
    }
    if (measurement.name == "holes") {
        return std::make_unique<HolesWork<Memory>>(memory, measurement.size,
                                                   holes / measurement.threads, thread + 1);
    }
    if (measurement.name == "cross") {
        return std::make_unique<CrossWork<Memory>>(memory, measurement.size, ring, thread,
                                                   stopping);
    }
    return std::make_unique<PairWork<Memory>>(memory, measurement.size);
}

} // namespace emm::tool
