// Maps an address to its place: a radix tree over the 2 MiB pages of 57 bits of address space. A
// lookup is three loads, needs no lock, and may run beside changes. A page knows its segment and
// the large blocks that begin in it; the segment knows where small ones begin.
#pragma once

#include "segment.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace emm::pool {

struct alignas(32) Page {
    std::atomic<Segment *> segment{nullptr};
    // The page's part of the segment's owners, one load nearer than by way of the segment.
    std::atomic<const std::atomic<uintptr_t> *> owners{nullptr};
    // Blocks that begin in the page: the record's address, a multiple of 64, and the offset in
    // granules. At most two blocks of over half a page can begin in one.
    std::atomic<uint64_t> starts[2] = {};

    Block *start_at(uint64_t address) const {
        const uint64_t one = starts[0].load(std::memory_order_acquire);
        const uint64_t other = starts[1].load(std::memory_order_acquire);
        if ((one | other) == 0) {
            return nullptr;
        }
        if (one != 0 && one % granules == place_of(address)) {
            return block_in(one);
        }
        return other != 0 && other % granules == place_of(address) ? block_in(other) : nullptr;
    }
    uintptr_t owner(uint64_t address) const {
        const std::atomic<uintptr_t> *const all = owners.load(std::memory_order_acquire);
        return all ? all[place_of(address)].load(std::memory_order_acquire) : 0;
    }
    // The last block that begins at or before the address; NULL if none does in this page.
    Block *last_start(uint64_t address) const;
    bool add_start(uint64_t address, Block &block); // false: there are two already
    bool remove_start(uint64_t address);            // false: there was none

private:
    static constexpr uint64_t granules = segment_granule / granule;
    static uint64_t place_of(uint64_t address) { return address / granule % granules; }
    static Block *block_in(uint64_t word) {
        return reinterpret_cast<Block *>(word / granules * record_alignment);
    }
};

class PageMap {
public:
    PageMap() = default;
    ~PageMap();
    PageMap(const PageMap &) = delete;
    PageMap &operator=(const PageMap &) = delete;

    // Makes room for [base, base + size); afterwards `set` of any part of it allocates nothing.
    void reserve(uint64_t base, uint64_t size);
    // Each page of it begins empty.
    void set(uint64_t base, uint64_t size, Segment *segment);

    Page *page(uint64_t address) const {
        const uint64_t number = address / segment_granule;
        if (number >> (3 * level_bits)) {
            return nullptr;
        }
        const Middle *middle = root_[number >> (2 * level_bits)].load(std::memory_order_acquire);
        Leaf *leaf =
            middle ? (*middle)[(number >> level_bits) % fanout].load(std::memory_order_acquire)
                   : nullptr;
        return leaf ? &(*leaf)[number % fanout] : nullptr;
    }
    Segment *find(uint64_t address) const {
        const Page *there = page(address);
        return there ? there->segment.load(std::memory_order_acquire) : nullptr;
    }

private:
    static constexpr unsigned level_bits = 12;
    static constexpr uint64_t fanout = 1 << level_bits;
    using Leaf = std::array<Page, fanout>;
    using Middle = std::array<std::atomic<Leaf *>, fanout>;

    Leaf *leaf_of(uint64_t number);

    std::array<std::atomic<Middle *>, fanout> root_ = {};
};

} // namespace emm::pool
