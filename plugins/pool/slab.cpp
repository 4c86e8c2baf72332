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
    for (uint32_t i = slab->count; i-- > 0;) {
        slab->slots[i].slab = slab.get();
        slab->slots[i].next = slab->ready_slots;
        slab->ready_slots = &slab->slots[i];
    }
    slab->ready_count = slab->count;
    return slab.release();
}

void delete_slab(Slab *slab) {
    delete[] slab->slots;
    delete slab;
}

} // namespace emm::pool
