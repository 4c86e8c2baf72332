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

    // A slot that `pool` may use at once; NULL if there is none.
    Slot *take(FreePool &pool, unsigned index);

    // Afterwards the next `add` for this class cannot fail. Throws std::bad_alloc.
    void prepare(unsigned index);
    // Makes a slab for `pool` of a block taken for it.
    void add(unsigned index, Block &block, FreePool &pool);

    void give(Slot &slot, FreePool &pool);
    void give_complete(Slot &slot) { ready(slot); } // the slot waits for nothing

    // Slots that `pool` freed with tags up to `tag` are complete.
    void complete(FreePool &pool, uint64_t tag);

    // Makes slabs that a free pool no longer needs available to all.
    void disband(FreePool &pool);

    // Gives slabs without an allocation back to the heap.
    void drop_spares(FreePool &pool);

    void forget(Slab &slab) { spare_[slab.index].push_front(slab); } // its block is gone
    void forget_all() { quarantined_ = 0; }                          // every block is gone

    uint64_t quarantined() const {
        return quarantined_;
    } // bytes in slots that no request may use yet

private:
    void ready(Slot &slot);
    void drop(Slab &slab);

    Heap &heap_;
    List<Slab, &Slab::owned> spare_[slab_classes]; // records without a block
    uint64_t quarantined_ = 0;
};

} // namespace emm::pool
