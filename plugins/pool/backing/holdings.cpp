#include "holdings.h"

#include <algorithm>

namespace emm::pool {
void Holdings::add(uint64_t bytes, bool spilled) {
    reserved_ += bytes;
    spilled_ += spilled ? bytes : 0;
    most_reserved_ = std::max(most_reserved_, reserved_);
    peak_reserved_ = std::max(peak_reserved_, reserved_);
}

void Holdings::remove(uint64_t bytes, bool spilled) {
    reserved_ -= bytes;
    spilled_ -= spilled ? bytes : 0;
}

bool Holdings::has_room_for(uint64_t bytes, uint64_t leaving, bool spilled) const {
    const uint64_t held = spilled ? spilled_ + spilling_ : claimed();
    return may_take(held, bytes, leaving, spilled ? most_spilled_ : options_.max);
}

uint64_t Holdings::most_with(uint64_t bytes) const {
    return std::max(most_taken_, taken() + waiting_ + bytes);
}

uint64_t Holdings::pending_not_taken() const {
    return memory_.heap.quarantined() + memory_.slabs.quarantined() + waiting_ +
           caches_.waiting_block_bytes();
}

uint64_t Holdings::pending() const {
    return pending_not_taken() + caches_.quarantined_bytes();
}

// Memory in the quarantine of threads counts as taken and as pending. Both leave it out here,
// because it changes while it is read.
uint64_t Holdings::cached() const {
    const uint64_t idle = std::min(caches_.idle_bytes(), taken());
    const uint64_t busy = taken() - idle + pending_not_taken();
    return reserved_ > busy ? reserved_ - busy
                            : 0; // `busy` may be more, while memory is on its way in
}

uint64_t Holdings::cached_of_device() const {
    const uint64_t all = cached();
    return all - std::min({all, spilled_, memory_.heap.idle_in(Zone::spilled)});
}

uint64_t Holdings::idle_at_most() const {
    const uint64_t used = taken() + waiting_;
    const uint64_t max = options_.max;
    const uint64_t limit =
        max == UINT64_MAX ? reserved_ : max + std::min(spilled_, UINT64_MAX - max);
    return limit > used ? limit - used : 0;
}

// Idle host memory goes back first, so a device that has become too full keeps none of it.
uint64_t Holdings::most_idle() const {
    if (of_device() <= options_.max) {
        return options_.release_threshold;
    }
    const uint64_t idle = cached_of_device(), busy = of_device() - std::min(idle, of_device());
    return std::min(options_.release_threshold, options_.max - std::min(options_.max, busy));
}

// Unordered frees that are not complete count as needed too: no request can have their memory.
Allowance Holdings::allowance(uint64_t bytes) const {
    const uint64_t unordered = pending_not_taken();
    return {.claimed = claimed(),
            .most = std::max(most_with(bytes), taken() + unordered + bytes),
            .limit = limit(),
            .slack = options_.slack,
            .pending = unordered};
}

// Host memory is expensive to take, so all idle memory moves before any is added.
Allowance Holdings::spill_allowance() const {
    return {.claimed = spilled_ + spilling_,
            .most = spilled_,
            .limit = most_spilled_,
            .slack = options_.slack};
}

bool Holdings::awaits_pending(const StreamPool &pool, uint64_t bytes) const {
    return pool.order == Order::anyone && is_worth_a_wait(taken(), allowance(bytes));
}

} // namespace emm::pool
