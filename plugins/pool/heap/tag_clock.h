// The clock of a pool: a count of tags. Every free has the tag of its moment, and every recorded
// event ends one tag: it covers all frees with a tag up to that.
#pragma once

#include <cstdint>

namespace emm::pool {

class TagClock {
public:
    uint64_t now() const { return now_; }
    uint64_t end_tag() {
        return now_++;
    } // which is returned; what is freed from here on has the next

private:
    uint64_t now_ = 1;
};

} // namespace emm::pool
