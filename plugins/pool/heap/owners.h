// For each granule of a segment, what begins there. It is as long as the segment, and only the
// parts in which something begins take host memory: a part is a host page, and goes back to the
// system a while after the last of its granules became empty. Else a program whose memory moves
// would in time touch all of it.
#pragma once

#include "host_pages.h"

#include <atomic>
#include <cstdint>

namespace emm::pool {

class Owners {
public:
    explicit Owners(uint64_t granules);

    // Without the pool's lock, beside changes.
    uintptr_t at(uint64_t index) const { return owners_[index].load(std::memory_order_acquire); }
    // Those of 2 MiB from there on.
    const std::atomic<uintptr_t> *from(uint64_t index) const { return &owners_[index]; }

    // With the pool's lock. 0: nothing begins there.
    void set(uint64_t index, uintptr_t owner);

private:
    static constexpr uint32_t none = 0;

    struct Part {
        uint32_t next;   // that became empty, by its number and 1
        uint16_t used;   // granules in which something begins
        uint16_t queued; // 1: among those that became empty, though it may be in use again
    };
    bool has_too_many() const;
    void queue(uint64_t number);
    void discard_first();

    HostPages<std::atomic<uintptr_t>> owners_;
    const unsigned part_bits_; // granules of a part
    HostPages<Part> parts_;
    uint64_t used_parts_ = 0;
    uint64_t idle_parts_ = 0;             // empty, with host memory: all of them are queued
    uint64_t used_of_late_ = 0;           // at most, but for what was long ago
    uint32_t emptied_ = 0;                // parts, since ever
    uint32_t first_ = none, last_ = none; // queued parts
};

} // namespace emm::pool
