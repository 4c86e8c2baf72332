#include "magazine.h"

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
                   const Thread &its_owner, uint64_t largest)
    : unordered(its_domain.order == Order::anyone), largest_block(largest),
      quarantine(unordered ? std::make_unique<Bins>() : nullptr), key(its_domain.key),
      manager(its_manager), manager_identity(identity), domain(its_domain), owner(its_owner),
      returns_(unordered ? quarantine->data() : bins.data()) {}

uint64_t Magazine::take_block(uint64_t bytes, size_t size) {
    for (uint32_t n = block_count.get(); n-- > 0;) {
        if (blocks[n].size != bytes) {
            continue;
        }
        const LooseBlock found = blocks[n];
        block_count.add(uint32_t(-1));
        block_bytes.add(-bytes);
        for (; n < block_count.get(); n++) {
            blocks[n] = blocks[n + 1];
        }
        found.block->loan.begin(size);
        return found.address;
    }
    return 0;
}

bool Magazine::give_block(Block &block) {
    if (block.size > largest_block || block_count.get() == most_blocks) {
        return false;
    }
    block.loan.end();
    blocks[block_count.get()] = {block.begin, block.size, &block};
    block_count.add(1);
    block_bytes.add(block.size);
    return true;
}

uint64_t Magazine::idle_bytes() const {
    return block_bytes.get() + bytes_in(bins);
}

uint64_t Magazine::quarantined_bytes() const {
    return quarantine ? bytes_in(*quarantine) : 0;
}

} // namespace emm::pool
