// A set of small numbers that answers "which member is the last one at or before n?" in a few
// steps: each level has one bit for each 64-bit word of the level below.
#pragma once

#include "host_pages.h"

#include <cstdint>
#include <vector>

namespace emm::pool {

class BitLadder {
public:
    static constexpr uint64_t none = ~uint64_t(0);

    explicit BitLadder(uint64_t count);
    void set(uint64_t index);
    void clear(uint64_t index);
    uint64_t last_at_or_before(uint64_t index) const; // or `none`

private:
    std::vector<HostPages<uint64_t>> levels_; // the finest first
};

} // namespace emm::pool
