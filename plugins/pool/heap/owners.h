// For each granule of a segment, the place that begins there. The array is as long as the segment,
// but only used parts of it, and up to about a quarter of it besides, take host memory. A part is a
// host page; beyond that it goes back to the system a while after its last granule has become
// empty. Otherwise a program whose memory moves would in time touch all of it.
#pragma once

#include "host_pages.h"

#include <atomic>
#include <cstdint>

namespace emm::pool {

class Owners {
public:
    explicit Owners(uint64_t granules);

    // Without the pool's lock, while others may change it.
    uintptr_t at(uint64_t index) const { return owners_[index].load(std::memory_order_acquire); }
    // The entries of the 2 MiB from there on.
    const std::atomic<uintptr_t> *from(uint64_t index) const { return &owners_[index]; }

    // With the pool's lock. 0: nothing begins there.
    void set(uint64_t index, uintptr_t owner);

private:
    static constexpr uint32_t none = 0;

    struct Part {
        uint32_t next;   // the next emptied part, by its number plus 1
        uint16_t used;   // granules where something begins
        uint16_t queued; // 1: in the queue of emptied parts, though it may be in use again
    };
    bool has_too_many() const;
    void queue(uint64_t number);
    void discard_first();

    HostPages<std::atomic<uintptr_t>> owners_;
    const unsigned part_bits_; // granules of a part
    HostPages<Part> parts_;
    uint64_t used_parts_ = 0;
    uint64_t idle_parts_ = 0;             // empty, with host memory; all of them are in the queue
    uint64_t used_of_late_ = 0;           // the most in recent use
    uint32_t emptied_ = 0;                // parts emptied so far
    uint32_t first_ = none, last_ = none; // of the queue
};

} // namespace emm::pool
