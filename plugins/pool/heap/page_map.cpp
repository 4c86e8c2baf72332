#include "page_map.h"

namespace emm::pool {

Block *Page::last_start(uint64_t address) const {
    uint64_t last = 0;
    for (const std::atomic<uint64_t> &start : starts) {
        const uint64_t word = start.load(std::memory_order_relaxed);
        if (word != 0 && word % granules <= place_of(address) &&
            (last == 0 || word % granules > last % granules)) {
            last = word;
        }
    }
    return last ? block_in(last) : nullptr;
}

bool Page::add_start(uint64_t address, Block &block) {
    const uint64_t record = reinterpret_cast<uintptr_t>(&block) / record_alignment;
    for (std::atomic<uint64_t> &start : starts) {
        if (start.load(std::memory_order_relaxed) == 0) {
            start.store(record * granules + place_of(address), std::memory_order_release);
            return true;
        }
    }
    return false;
}

bool Page::remove_start(uint64_t address) {
    for (std::atomic<uint64_t> &start : starts) {
        const uint64_t word = start.load(std::memory_order_relaxed);
        if (word != 0 && word % granules == place_of(address)) {
            start.store(0, std::memory_order_release);
            return true;
        }
    }
    return false;
}

PageMap::~PageMap() {
    for (auto &entry : root_) {
        Middle *middle = entry.load();
        if (middle) {
            for (auto &leaf : *middle) {
                delete leaf.load();
            }
            delete middle;
        }
    }
}

PageMap::Leaf *PageMap::leaf_of(uint64_t number) {
    if (number >> (3 * level_bits)) {
        throw std::bad_alloc(); // beyond the addresses of today's devices
    }
    auto &middle = root_[number >> (2 * level_bits)];
    if (!middle.load()) {
        middle.store(new Middle(), std::memory_order_release);
    }
    auto &leaf = (*middle.load())[(number >> level_bits) % fanout];
    if (!leaf.load()) {
        leaf.store(new Leaf(), std::memory_order_release);
    }
    return leaf.load();
}

void PageMap::reserve(uint64_t base, uint64_t size) {
    for (uint64_t number = base / segment_granule; number < (base + size) / segment_granule;
         number++) {
        leaf_of(number);
    }
}

void PageMap::set(uint64_t base, uint64_t size, Segment *segment) {
    for (uint64_t number = base / segment_granule; number < (base + size) / segment_granule;
         number++) {
        Page &page = (*leaf_of(number))[number % fanout];
        for (std::atomic<uint64_t> &start : page.starts) {
            start.store(0, std::memory_order_relaxed);
        }
        const uint64_t address = number * segment_granule;
        page.owners.store(segment ? segment->owners.from(segment->index(address)) : nullptr,
                          std::memory_order_release);
        page.segment.store(segment, std::memory_order_release);
    }
}

} // namespace emm::pool
