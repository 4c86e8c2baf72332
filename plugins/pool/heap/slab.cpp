#include "slab.h"

#include <algorithm>
#include <memory>

namespace emm::pool {

uint64_t slab_bytes(unsigned index) {
    constexpr uint64_t smallest = 32 << 10;
    constexpr uint64_t slots = 8;
    return std::max(smallest, class_size(index) * slots);
}

Slab *new_slab(unsigned index) {
    auto slab = std::make_unique<Slab>();
    slab->index = index;
    slab->slot_size = uint32_t(class_size(index));
    slab->count = uint32_t(slab_bytes(index) / slab->slot_size);
    slab->slots = new Slot[slab->count];
    for (uint32_t i = 0; i < slab->count; i++) {
        slab->slots[i].slab = slab.get();
        slab->slots[i].index = uint8_t(index);
    }
    return slab.release();
}

void renew_slab(Slab &slab) {
    slab.ready_slots = nullptr;
    slab.ready_count = slab.count;
    slab.newest = 0;
    for (uint32_t i = slab.count; i-- > 0;) {
        Slot &slot = slab.slots[i];
        slot.uses = nullptr;
        slot.state = State::free;
        slot.loan.end();
        slot.next = slab.ready_slots;
        slab.ready_slots = &slot;
    }
}

void delete_slab(Slab *slab) {
    delete[] slab->slots;
    delete slab;
}

} // namespace emm::pool
