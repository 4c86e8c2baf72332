#include "page_map.h"

namespace emm::pool {

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

PageMap::Leaf *PageMap::leaf_of(uint64_t page) {
    if (page >> (3 * level_bits)) {
        throw std::bad_alloc(); // no address of this generation of devices
    }
    auto &middle = root_[page >> (2 * level_bits)];
    if (!middle.load()) {
        middle.store(new Middle(), std::memory_order_release);
    }
    auto &leaf = (*middle.load())[(page >> level_bits) % fanout];
    if (!leaf.load()) {
        leaf.store(new Leaf(), std::memory_order_release);
    }
    return leaf.load();
}

void PageMap::reserve(uint64_t base, uint64_t size) {
    for (uint64_t page = base / segment_granule; page < (base + size) / segment_granule; page++) {
        leaf_of(page);
    }
}

void PageMap::set(uint64_t base, uint64_t size, Segment *segment) {
    for (uint64_t page = base / segment_granule; page < (base + size) / segment_granule; page++) {
        (*leaf_of(page))[page % fanout].store(segment, std::memory_order_release);
    }
}

} // namespace emm::pool
