#include "magazine.h"

#include "depot.h"
#include "thread.h"

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
                   const Thread &owner, uint64_t largest)
    : unordered(its_pool.order == Order::anyone), largest_block(largest),
      quarantine_(unordered ? std::make_unique<Bins>() : nullptr), key_(its_pool.key()),
      caches_(caches), manager_identity_(identity), pool(its_pool), depot_(depot), owner_(owner),
      returns_(unordered ? quarantine_->data() : bins_.data()) {}

bool Magazine::is_own() const {
    return &owner_ == Thread::self_if_any();
}

bool Magazine::swap_in(unsigned index) {
    return depot_.swap_in(bins_[index], index);
}

bool Magazine::swap_out(unsigned index) {
    Bin &bin = bins_[index];
    const bool may = !unordered && bin.limit >= capacity(index);
    return may && depot_.swap_out(bin, index, (bin.count.get() + 1) / 2);
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
    return block_bytes_.get() + bytes_in(bins_);
}

uint64_t Magazine::quarantined_bytes() const {
    return quarantine_ ? bytes_in(*quarantine_) : 0;
}

} // namespace emm::pool
