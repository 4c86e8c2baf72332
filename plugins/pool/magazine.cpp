#include "magazine.h"

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

Magazine::Magazine(Manager &its_manager, uint64_t identity, Domain &its_domain,
                   SlotShelf &its_shelf, const Thread &its_owner, uint64_t largest)
    : unordered(its_domain.order == Order::anyone), largest_block(largest),
      quarantine(unordered ? std::make_unique<Bins>() : nullptr), key(its_domain.key()),
      manager(its_manager), manager_identity(identity), domain(its_domain), shelf(its_shelf),
      owner(its_owner), returns_(unordered ? quarantine->data() : bins.data()) {}

// A block of that size, if there is one, becomes the newest.
void Magazine::raise_block(uint64_t bytes) {
    for (uint32_t n = block_count.get(); n-- > 0;) {
        if (blocks[n].size == bytes) {
            return std::swap(blocks[n], blocks[block_count.get() - 1]);
        }
    }
}

uint64_t Magazine::idle_bytes() const {
    return block_bytes.get() + bytes_in(bins);
}

uint64_t Magazine::quarantined_bytes() const {
    return quarantine ? bytes_in(*quarantine) : 0;
}

} // namespace emm::pool
