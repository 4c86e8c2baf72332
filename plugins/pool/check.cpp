// The invariants, verified. A build with -DEMM_POOL_CHECK looks at them after calls, and a broken
// one becomes the call's error.
#include "manager.h"

#include <stdexcept>

namespace emm::pool {

// Every byte of every segment is live, pending or cached, counted once.
std::string Manager::fault() const {
    uint64_t blocks = 0, free = 0;
    for (const Segment *s = heap_.first_segment(); s; s = heap_.next_segment(*s)) {
        for (const Block *block = s->first; block; block = block->right) {
            const uint64_t dirt = block->dirty() && block->domain->order != Order::stream
                                      ? block->dirty_end - block->dirty_begin
                                      : 0;
            free += block->state == State::free ? block->size - dirt : 0;
            blocks += block->state == State::live ? block->size : 0;
        }
    }
    if (acquiring_ == 0 && blocks > taken_) {
        return "live blocks are larger than what is counted as taken";
    }
    if (acquiring_ == 0 && free > cached_bytes()) {
        return "free blocks are larger than the cached bytes counted";
    }
    std::string found = heap_.fault();
    for (const auto &pool : hosts_) {
        found = pool && found.empty() ? pool->fault() : found;
    }
    return found;
}

void Manager::check() {
#ifdef EMM_POOL_CHECK
    if (const char *call = Mutex::offender) {
        throw std::logic_error(std::string("pool: ") + call + " was called under a lock");
    }
    constexpr uint64_t often = 64;
    if (const uint64_t calls = allocations_ + frees_; calls < often || calls % often == 0) {
        const std::string found = fault();
        if (!found.empty()) {
            throw std::logic_error("pool: " + found);
        }
    }
#endif
}

} // namespace emm::pool
