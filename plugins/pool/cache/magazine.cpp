#include "magazine.h"

#include "depot.h"
#include "thread_caches.h"

namespace emm::pool {
namespace {

uint64_t bytes_in(const Magazine::Bins &bins) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < slab_classes; i++) {
        bytes += bins[i].count.get() * class_size(i);
    }
    return bytes;
}

} // namespace

Magazine::Magazine(ThreadCaches &its_caches, uint64_t identity, StreamPool &its_pool, Depot &depot,
                   const Thread &owner, const BlockLimits &limits)
    : unordered(its_pool.order == Order::anyone), pool(its_pool), caches(its_caches),
      quarantine_(unordered ? std::make_unique<Bins>() : nullptr),
      returns_(unordered ? quarantine_->data() : bins_.data()), recent_(limits.recent),
      repeated_(limits.repeated),
      unordered_blocks_(limits.unordered > slab_limit
                            ? std::make_unique<UnorderedBlocks>(limits.unordered, limits.most_freed)
                            : nullptr),
      key_(its_pool.key()), counts_(its_caches.counts()), manager_identity_(identity),
      depot_(depot), owner_(owner) {}

bool Magazine::is_own() const {
    return &owner_ == Thread::self_if_any();
}

bool Magazine::swap_in(unsigned index) {
    return depot_.swap_in(bins_[index], index);
}

bool Magazine::swap_out(unsigned index) {
    Bin &bin = bins_[index];
    const bool may = !unordered && bin.limit >= most_slots_a_bin(index);
    return may && depot_.swap_out(bin, index, (bin.count.get() + 1) / 2);
}

uint64_t Magazine::take_block(size_t size) {
    const uint64_t bytes = round_up(size, granule);
    Block *block = nullptr;
    if (unordered_blocks_) {
        block = unordered_blocks_->take(bytes);
    } else if (!recent_.accepts(bytes)) {
        block = repeated_.take(bytes);
    } else if (const RecentBlocks::Entry *entry = recent_.take(bytes)) {
        block = entry->block;
    }
    if (!block) {
        return 0;
    }
    block->loan.begin(size);
    count_allocation(size);
    return block->begin;
}

bool Magazine::give_other_block(const Heap &heap, uint64_t address, size_t size) {
    Block *block = heap.found_at(address).block;
    const uint64_t lent = block ? block->loan.plain_size() : 0;
    if (!is_size_of(lent, size) ||
        !(unordered_blocks_ ? unordered_blocks_->give(*block) : repeated_.give(*block))) {
        return false;
    }
    block->loan.end();
    count_free(lent);
    return true;
}

void Magazine::note_miss(uint64_t bytes) {
    if (unordered_blocks_) {
        unordered_blocks_->note_miss(bytes);
    } else if (!recent_.accepts(bytes)) {
        repeated_.note_miss(bytes);
    }
}

uint64_t Magazine::largest_kept_block() const {
    return unordered_blocks_ ? unordered_blocks_->largest() : repeated_.largest();
}

bool Magazine::is_unused() const {
    return drained_ && (allocations_.get() | frees_.get()) == 0 && empty() &&
           (!pinned || pinned->is_unused());
}

uint64_t Magazine::idle_bytes() const {
    return recent_.idle_bytes() + repeated_.idle_bytes() + bytes_in(bins_) +
           (unordered_blocks_ ? unordered_blocks_->idle_bytes() : 0);
}

uint64_t Magazine::quarantined_bytes() const {
    return (quarantine_ ? bytes_in(*quarantine_) : 0) +
           (unordered_blocks_ ? unordered_blocks_->freed_bytes.get() : 0);
}

} // namespace emm::pool
