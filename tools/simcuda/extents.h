#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace simcuda {

// Free ranges of an address space. Neighbours are joined, though never across a multiple of
// `boundary`.
class Extents {
public:
    explicit Extents(uint64_t boundary = 0) : boundary_(boundary) {}

    // The start of the smallest range that is large enough; of several, the lowest.
    std::optional<uint64_t> take(uint64_t size);
    bool take_at(uint64_t start, uint64_t size);

    struct Range {
        uint64_t start, size;
    };
    // Gives the range that the returned one has become part of.
    Range give(uint64_t start, uint64_t size);

    const std::map<uint64_t, uint64_t> &ranges() const { return by_start_; }
    uint64_t largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

private:
    using Iterator = std::map<uint64_t, uint64_t>::iterator;
    void insert(uint64_t start, uint64_t size);
    void erase(Iterator range);
    bool joins(uint64_t at) const { return boundary_ == 0 || at % boundary_ != 0; }

    uint64_t boundary_;
    std::map<uint64_t, uint64_t> by_start_;
    std::set<std::pair<uint64_t, uint64_t>> by_size_;
};

} // namespace simcuda
