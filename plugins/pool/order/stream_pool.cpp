#include "stream_pool.h"

namespace emm::pool {

void StreamPool::forget_memory(uint64_t now) {
    FreePool::forget_memory(now);
    pinned = {};
    uses_ = {};
    open_bytes_ = open_frees_ = 0;
    balance_ = 0;
    references_ = 0;
}

// A stream that left nothing behind. Registered ones stay until they retire.
bool StreamPool::is_idle() const {
    return order == Order::stream && !registered && references_ == 0 && magazines_ == 0 &&
           capturing_ == 0 && !stale_ && newest <= completed && events_.empty() && uses_.empty() &&
           pinned.empty() && holds_nothing();
}

} // namespace emm::pool
