// Slots to and from slabs; slabs to and from the heap.
#pragma once

#include "heap.h"

namespace emm::pool {

class Slabs {
public:
    explicit Slabs(Heap &heap) : heap_(heap) {}
    ~Slabs();
    Slabs(const Slabs &) = delete;
    Slabs &operator=(const Slabs &) = delete;

    // A slot that `domain` may use at once; NULL if there is none.
    Slot *take(FreePool &domain, unsigned index);

    // The next call of add for this class cannot fail. Throws std::bad_alloc.
    void prepare(unsigned index);
    // Makes a slab for `domain` of a block that has been taken for it.
    void add(unsigned index, Block &block, FreePool &domain);

    void give(Slot &slot, FreePool &domain);
    void give_complete(Slot &slot) { ready(slot); } // which waits for nothing

    // What `domain` freed with tags up to `tag` is complete.
    void complete(FreePool &domain, uint64_t tag);

    // Gives the slabs that a domain will not need again to everybody.
    void disband(FreePool &domain);

    // Gives slabs without an allocation back to the heap.
    void drop_spares(FreePool &domain);

    void forget(Slab &slab) { spare_[slab.index].push_front(slab); } // its block is gone
    void forget_all() { quarantined_ = 0; }                          // every block is gone

    uint64_t quarantined() const { return quarantined_; } // bytes in slots nobody may use yet

private:
    void ready(Slot &slot);
    void drop(Slab &slab);

    Heap &heap_;
    List<Slab, &Slab::owned> spare_[slab_classes]; // records without a block
    uint64_t quarantined_ = 0;
};

} // namespace emm::pool
