// The clock of a pool: a count of tags. Every free has the tag of its moment. Every recorded event
// ends a tag, and covers all frees with tags up to it.
#pragma once

#include <cstdint>

namespace emm::pool {

class TagClock {
public:
    uint64_t now() const { return now_; }
    uint64_t end_tag() {
        return now_++;
    } // the ended tag is returned; later frees have the next one

private:
    uint64_t now_ = 1;
};

} // namespace emm::pool
