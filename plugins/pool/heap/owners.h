// For each granule of a segment, the place that begins there. The array is as long as the segment,
// but only the parts that are used take host memory. A part is a host page. It stays as long as the
// device memory that it stands for, so that blocks which come and go cost no system call and no
// page fault, also where their places change; then it goes back to the system.
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
    // With the pool's lock. Gives back the host memory of the parts that have one of these granules
    // and in which nothing begins.
    void discard(uint64_t begin, uint64_t end);

private:
    struct Part {
        uint16_t used;    // granules where something begins
        uint16_t touched; // 1: it takes host memory
    };
    bool is_idle(uint64_t number) const {
        return parts_[number].touched && parts_[number].used == 0;
    }

    HostPages<std::atomic<uintptr_t>> owners_;
    const unsigned part_bits_; // granules of a part
    HostPages<Part> parts_;
};

} // namespace emm::pool
