// From an address to the segment around it: a radix tree over the 2 MiB pages of 57 bits of
// address space. Lookups are three loads, need no lock, and may run beside changes.
#pragma once

#include "segment.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace emm::pool {

class PageMap {
public:
    PageMap() = default;
    ~PageMap();
    PageMap(const PageMap &) = delete;
    PageMap &operator=(const PageMap &) = delete;

    // Makes room for [base, base + size); afterwards `set` of any part of it allocates nothing.
    void reserve(uint64_t base, uint64_t size);
    void set(uint64_t base, uint64_t size, Segment *segment);

    Segment *find(uint64_t address) const {
        const uint64_t page = address / segment_granule;
        if (page >> (3 * level_bits)) {
            return nullptr;
        }
        const Middle *middle = root_[page >> (2 * level_bits)].load(std::memory_order_acquire);
        const Leaf *leaf =
            middle ? (*middle)[(page >> level_bits) % fanout].load(std::memory_order_acquire)
                   : nullptr;
        return leaf ? (*leaf)[page % fanout].load(std::memory_order_acquire) : nullptr;
    }

private:
    static constexpr unsigned level_bits = 12;
    static constexpr uint64_t fanout = 1 << level_bits;
    using Leaf = std::array<std::atomic<Segment *>, fanout>;
    using Middle = std::array<std::atomic<Leaf *>, fanout>;

    Leaf *leaf_of(uint64_t page);

    std::array<std::atomic<Middle *>, fanout> root_ = {};
};

} // namespace emm::pool
