#include "magazine.h"

#include "depot.h"
#include "thread_caches.h"

#include <utility>

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

Magazine::Magazine(ThreadCaches &caches, uint64_t identity, StreamPool &its_pool, Depot &depot,
                   const Thread &owner, const BlockLimits &limits)
    : unordered(its_pool.order == Order::anyone), largest_block(unordered ? 0 : limits.largest),
      quarantine_(unordered ? std::make_unique<Bins>() : nullptr),
      unordered_blocks_(unordered && limits.largest > slab_limit
                            ? std::make_unique<UnorderedBlocks>(limits.most_freed)
                            : nullptr),
      largest_(limits.largest), key_(its_pool.key()), caches_(caches), counts_(caches.counts()),
      manager_identity_(identity), pool(its_pool), depot_(depot), owner_(owner),
      returns_(unordered ? quarantine_->data() : bins_.data()),
      largest_large_(limits.largest_again) {}

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

// The block that was lent as `size` bytes, or as unknown many if that is 0; NULL: it is none, or
// there is anything unusual about it.
Block *Magazine::lent_at(const Heap &heap, uint64_t address, size_t size) {
    Block *block = heap.found_at(address).block;
    return block && agree(block->loan.plain_size(), size) ? block : nullptr;
}

uint64_t Magazine::begin_loan(Block &block, size_t size) {
    block.loan.begin(size);
    count_allocation(size);
    return block.begin;
}

void Magazine::end_loan(Block &block) {
    count_free(block.loan.plain_size());
    block.loan.end();
}

uint64_t Magazine::take_unordered(size_t size) {
    Block *block = unordered_blocks_->take(round_up(size, granule));
    return block ? begin_loan(*block, size) : 0;
}

bool Magazine::give_unordered(const Heap &heap, uint64_t address, size_t size) {
    Block *block = lent_at(heap, address, size);
    if (!block || !unordered_blocks_->can_take_back(block->size)) {
        return false;
    }
    end_loan(*block);
    unordered_blocks_->take_back(*block);
    return true;
}

uint64_t Magazine::take_large(size_t size) {
    const uint32_t n = large_.count.get();
    if (n == 0 || round_up(size, granule) != large_.size.get()) {
        return 0;
    }
    Block *block = large_.blocks[n - 1];
    large_.count.set(n - 1);
    return begin_loan(*block, size);
}

bool Magazine::give_large(const Heap &heap, uint64_t address, size_t size) {
    Block *block = lent_at(heap, address, size);
    const uint32_t n = large_.count.get();
    if (!block || block->size != large_.size.get() || n == most_blocks_a_magazine) {
        return false;
    }
    end_loan(*block);
    large_.blocks[n] = block;
    large_.count.set(n + 1);
    return true;
}

void Magazine::note_miss(uint64_t bytes) {
    if (unordered_blocks_ && bytes <= largest_) {
        unordered_blocks_->note_miss(bytes);
    } else if (bytes > largest_block && bytes <= largest_large_) {
        large_.size.set(bytes == large_.lacked ? bytes : 0);
        large_.lacked = bytes;
    }
}

uint64_t Magazine::largest_idle() const {
    return unordered_blocks_        ? unordered_blocks_->largest()
           : large_.count.get() > 0 ? large_.size.get()
                                    : 0;
}

// A block of that size, if there is one, becomes the newest.
void Magazine::raise_block(uint64_t bytes) {
    for (uint32_t n = block_count_.get(); n-- > 0;) {
        if (blocks_[n].size == bytes) {
            return std::swap(blocks_[n], blocks_[block_count_.get() - 1]);
        }
    }
}

uint64_t Magazine::idle_bytes() const {
    return block_bytes_.get() + large_.idle_bytes() + bytes_in(bins_) +
           (unordered_blocks_ ? unordered_blocks_->idle_bytes() : 0);
}

uint64_t Magazine::quarantined_bytes() const {
    return (quarantine_ ? bytes_in(*quarantine_) : 0) +
           (unordered_blocks_ ? unordered_blocks_->freed_bytes.get() : 0);
}

} // namespace emm::pool
