#include "extents.h"

#include <iterator>

namespace simcuda {

void Extents::insert(uint64_t start, uint64_t size) {
    by_start_.emplace(start, size);
    by_size_.emplace(size, start);
}

void Extents::erase(Iterator range) {
    by_size_.erase({range->second, range->first});
    by_start_.erase(range);
}

std::optional<uint64_t> Extents::take(uint64_t size) {
    const auto found = by_size_.lower_bound({size, 0});
    if (found == by_size_.end()) {
        return std::nullopt;
    }
    const auto [whole, start] = *found;
    erase(by_start_.find(start));
    if (whole > size) {
        insert(start + size, whole - size);
    }
    return start;
}

bool Extents::take_at(uint64_t start, uint64_t size) {
    auto found = by_start_.upper_bound(start);
    if (found == by_start_.begin()) {
        return false;
    }
    --found;
    const auto [first, whole] = *found;
    if (first + whole < start + size) {
        return false;
    }
    erase(found);
    if (first < start) {
        insert(first, start - first);
    }
    if (first + whole > start + size) {
        insert(start + size, first + whole - start - size);
    }
    return true;
}

Extents::Range Extents::give(uint64_t start, uint64_t size) {
    auto next = by_start_.lower_bound(start);
    if (next != by_start_.end() && next->first == start + size && joins(next->first)) {
        size += next->second;
        const auto joined = next++;
        erase(joined);
    }
    if (next != by_start_.begin() && joins(start)) {
        const auto previous = std::prev(next);
        if (previous->first + previous->second == start) {
            start = previous->first;
            size += previous->second;
            erase(previous);
        }
    }
    insert(start, size);
    return {start, size};
}

} // namespace simcuda
