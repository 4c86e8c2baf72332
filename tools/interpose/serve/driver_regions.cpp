#include "driver_regions.h"

#include <algorithm>
#include <iterator>

namespace emm::run {
namespace {

void raise_to(std::atomic<uint64_t> &value, uint64_t to) noexcept {
    uint64_t old = value.load(std::memory_order_relaxed);
    while (old < to && !value.compare_exchange_weak(old, to, std::memory_order_release,
                                                    std::memory_order_relaxed)) {
    }
}

} // namespace

void DriverRegions::add(uint64_t address, uint64_t size) noexcept {
    const uint64_t moment = now_.fetch_add(1, std::memory_order_acq_rel) + 1;
    const uint64_t first = region_of(address);
    const uint64_t last = region_of(address + std::max<uint64_t>(size, 1) - 1);
    if (last - first >= region_count) {
        std::for_each(std::begin(latest_), std::end(latest_),
                      [&](auto &each) { raise_to(each, moment); });
        return;
    }
    for (uint64_t region = first; region <= last; region++) {
        raise_to(latest_[place_of(region)], moment);
    }
}

} // namespace emm::run
