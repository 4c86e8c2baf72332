#include "slabs.h"

#include <algorithm>

namespace emm::pool {

Slot *Slabs::take(FreePool &pool, unsigned index) {
    Slot *slot = nullptr;
    if (pool.order != Order::anyone && pool.freed[index].first) {
        slot = pool.freed[index].pop();
    } else {
        Slab *slab = pool.ready[index].first();
        slab = slab ? slab : heap_.anyone.ready[index].first();
        if (!slab) {
            return nullptr;
        }
        slot = slab->ready_slots;
        slab->ready_slots = slot->next;
        if (--slab->ready_count == 0) {
            slab->owner->ready[index].remove(*slab);
        }
    }
    slot->state = State::live;
    return slot;
}

Slabs::~Slabs() {
    for (auto &spare : spare_) {
        while (Slab *slab = spare.pop_front()) {
            delete_slab(slab);
        }
    }
}

void Slabs::prepare(unsigned index) {
    if (spare_[index].empty()) {
        spare_[index].push_front(*new_slab(index));
    }
}

void Slabs::add(unsigned index, Block &block, FreePool &pool) {
    Slab &slab = *spare_[index].pop_front();
    renew_slab(slab);
    slab.block = &block;
    slab.owner = &pool;
    slab.newest = heap_.now(); // work of the free pool itself may still use the block
    pool.slabs.push_back(slab);
    pool.ready[slab.index].push_front(slab);
    heap_.set_slab(block, &slab);
}

void Slabs::give(Slot &slot, FreePool &pool) {
    slot.tag = heap_.now();
    Slab &slab = *slot.slab;
    if (slab.owner == &pool) {
        slab.newest = slot.tag;
        ready(slot);
        return;
    }
    slot.state = State::waiting;
    pool.freed[slab.index].push(slot);
    quarantined_ += pool.order == Order::unordered ? slab.slot_size : 0;
}

// The slab's owner may use the slot again. One slab without an allocation is kept, so that a
// program that allocates and frees a single slot does not make and drop a slab each time.
void Slabs::ready(Slot &slot) {
    Slab &slab = *slot.slab;
    slot.state = State::free;
    slot.next = slab.ready_slots;
    slab.ready_slots = &slot;
    auto &others = slab.owner->ready[slab.index];
    if (slab.ready_count++ == 0) {
        others.push_front(slab);
    }
    const bool alone = others.first() == &slab && !others.next(slab);
    if (slab.ready_count == slab.count && !alone) {
        drop(slab);
    }
}

void Slabs::drop(Slab &slab) {
    FreePool &owner = *slab.owner;
    owner.ready[slab.index].remove(slab);
    owner.slabs.remove(slab);
    heap_.set_slab(*slab.block, nullptr);
    // The slab's ready slots wait for the owner's last free, which may be long complete.
    const bool complete = slab.newest <= owner.completed;
    heap_.give(*slab.block, complete ? heap_.anyone : owner, std::max(owner.newest, slab.newest));
    forget(slab);
}

void Slabs::complete(FreePool &pool, uint64_t tag) {
    for (SlotQueue &queue : pool.freed) {
        while (queue.first && queue.first->tag <= tag) {
            Slot *slot = queue.pop();
            quarantined_ -= pool.order == Order::unordered ? slot->slab->slot_size : 0;
            ready(*slot);
        }
    }
}

void Slabs::disband(FreePool &pool) {
    Slab *next = nullptr;
    for (Slab *slab = pool.slabs.first(); slab; slab = next) {
        next = pool.slabs.next(*slab);
        if (slab->newest > pool.completed) {
            continue;
        }
        pool.slabs.remove(*slab);
        if (slab->ready.linked) {
            pool.ready[slab->index].remove(*slab);
        }
        slab->owner = &heap_.anyone;
        slab->newest = 0;
        heap_.anyone.slabs.push_back(*slab);
        if (slab->ready_count > 0) {
            auto &others = heap_.anyone.ready[slab->index];
            others.push_back(*slab);
            if (slab->ready_count == slab->count && others.first() != slab) {
                drop(*slab);
            }
        }
    }
}

void Slabs::drop_spares(FreePool &pool) {
    for (auto &ready : pool.ready) {
        Slab *next = nullptr;
        for (Slab *slab = ready.first(); slab; slab = next) {
            next = ready.next(*slab);
            if (slab->ready_count == slab->count) {
                drop(*slab);
            }
        }
    }
}

} // namespace emm::pool
