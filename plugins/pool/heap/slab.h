// Small allocations: a slab is a block cut into slots of one size, and belongs to a free pool.
// Slots freed in that pool are ready at once. Slots freed in another pool come back when they are
// complete; meanwhile they serve the pool that freed them.
#pragma once

#include "block.h"

#include <bit>
#include <cstdint>

namespace emm::pool {

struct Slab;

// Sizes 512, 1024, ... 4096, then eight to each doubling: rounding wastes at most 12.5 %.
constexpr uint64_t slab_limit = 32 << 10;
constexpr unsigned slab_classes = 32;

constexpr unsigned class_of(uint64_t size) {
    if (size <= 8 * granule) {
        return size == 0 ? 0 : unsigned((size - 1) / granule);
    }
    const unsigned shift = unsigned(std::bit_width(size - 1)) - 4;
    return (shift - 9) * 8 + unsigned((size - 1) >> shift);
}

constexpr uint64_t class_size(unsigned index) {
    if (index < 8) {
        return (index + 1) * granule;
    }
    return uint64_t(index % 8 + 9) << (index / 8 + 8);
}

static_assert(class_of(slab_limit) == slab_classes - 1 &&
              class_size(slab_classes - 1) == slab_limit);

struct Slot {
    Slot *next = nullptr; // in a slab's ready slots, or in a queue of freed ones
    Slab *slab = nullptr;
    UseRecord *uses = nullptr;
    uint64_t tag = 0; // of its free
    Loan<uint32_t> loan;
    State state = State::free;
    uint8_t index = 0; // class
};

// First in, first out, so that tags ascend.
struct SlotQueue {
    Slot *first = nullptr;
    Slot **end = &first;

    SlotQueue() = default;
    SlotQueue(const SlotQueue &) = delete;
    SlotQueue &operator=(const SlotQueue &) = delete;

    void clear() {
        first = nullptr;
        end = &first;
    }
    void push(Slot &slot) {
        slot.next = nullptr;
        *end = &slot;
        end = &slot.next;
    }
    Slot *pop() {
        Slot *slot = first;
        first = slot->next;
        end = first ? end : &first;
        return slot;
    }
};

struct Slab {
    Block *block = nullptr;
    FreePool *owner = nullptr;
    unsigned index = 0; // class
    uint32_t slot_size = 0;
    uint32_t count = 0;
    uint32_t ready_count = 0;
    uint64_t newest = 0; // tag of the newest free by the owner
    Slot *ready_slots = nullptr;
    Slot *slots = nullptr;
    Link<Slab> ready; // of the owner's slabs that have ready slots
    Link<Slab> owned;

    uint64_t address(const Slot &slot) const {
        return block->begin + uint64_t(&slot - slots) * slot_size;
    }
};

// Throws std::bad_alloc. Records of slabs outlive them, because a wrong free may still read one. So
// Slabs keeps the records of dropped slabs for the next slab of the class.
Slab *new_slab(unsigned index);
void renew_slab(Slab &slab); // makes it as new
void delete_slab(Slab *slab);

// The memory of one slab of this class.
uint64_t slab_bytes(unsigned index);

} // namespace emm::pool
