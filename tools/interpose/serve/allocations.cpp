#include "allocations.h"

#include <bit>

namespace emm::run {
namespace {

constexpr size_t first_slots = 64;

// Beyond the ids that the driver gives, which count from 1.
constexpr uint64_t before_ids = uint64_t(1) << 62;

// The way to a shard is a shift.
static_assert(std::has_single_bit(sizeof(AllocationShard)));

// Copies a record member by member: a load that is wider than the stores before it waits until they
// are done.
Allocation copy_of(const Allocation &from) {
    return {from.address, from.size,  from.context,  from.id,       from.flags,
            from.kind,    from.freed, from.launched, from.exported, from.pool};
}

Allocation none_at(SpreadAddress at, FreedAddresses &freed) {
    Allocation none;
    none.freed = freed.has(at);
    return none;
}

} // namespace

// --- a shard -----------------------------------------------------------------------------------

inline size_t AllocationShard::slot_of(SpreadAddress at) const {
    const Allocation *const slots = slots_.data();
    size_t slot = home_of(at);
    while (slots[slot].address != 0 && slots[slot].address != at.address) {
        slot = (slot + 1) & mask_;
    }
    return slot;
}

[[gnu::noinline]] bool AllocationShard::grow() noexcept {
    std::vector<Allocation> old;
    try {
        old.resize(most_ == 0 ? first_slots : 2 * slots_.size());
    } catch (const std::bad_alloc &) {
        return false;
    }
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    most_ = slots_.size() / 4 * 3;
    for (const Allocation &allocation : old) {
        if (allocation.address != 0) {
            slots_[slot_of(SpreadAddress(allocation.address))] = allocation;
        }
    }
    return true;
}

// Gives the slot for the record; NULL: no memory.
inline Allocation *AllocationShard::make_room(SpreadAddress at) noexcept {
    if (count_ >= most_ && !grow()) [[unlikely]] {
        return nullptr;
    }
    Allocation &slot = slots_[slot_of(at)];
    count_ += slot.address == 0;
    return &slot;
}

void AllocationShard::forget_at(uint64_t address) {
    const std::lock_guard guard(lock_);
    const size_t slot = slot_of(SpreadAddress(address));
    if (slots_[slot].address != 0) {
        close_gap(slot);
    }
}

inline bool AllocationShard::insert(SpreadAddress at, uint64_t size, emm_context *context,
                                    uint32_t flags, Kind kind, emm_context *pool,
                                    FreedAddresses &freed) noexcept {
    const std::lock_guard guard(lock_);
    Allocation *const slot = make_room(at);
    if (!slot) [[unlikely]] {
        return false;
    }
    const uint64_t id = before_ids + ++last_id_ * shards + at.shard();
    *slot = {at.address, size, context, id, flags, kind, false, false, false, pool};
    freed.forget(at);
    return true;
}

// The record that has just left made room. If another allocation has taken the room, the driver
// will refuse the next free.
void AllocationShard::put_back(const Allocation &allocation, FreedAddresses &freed) noexcept {
    const std::lock_guard guard(lock_);
    const SpreadAddress at(allocation.address);
    if (Allocation *const slot = make_room(at)) {
        *slot = allocation;
        freed.forget(at);
    }
}

inline Allocation AllocationShard::find(SpreadAddress at, FreedAddresses &freed) {
    const std::lock_guard guard(lock_);
    const Allocation found = slots_[slot_of(at)];
    return found.address == 0 ? none_at(at, freed) : found;
}

inline Allocation AllocationShard::remove_slot(size_t slot, SpreadAddress at,
                                               FreedAddresses &freed) {
    const Allocation removed = copy_of(slots_[slot]);
    close_gap(slot);
    freed.remember(at);
    return removed;
}

inline Allocation AllocationShard::take(SpreadAddress at, uint32_t kinds, uint64_t id,
                                        FreedAddresses &freed) {
    const std::lock_guard guard(lock_);
    const size_t slot = slot_of(at);
    const Allocation &found = slots_[slot];
    if (found.address == 0) {
        return none_at(at, freed);
    }
    if (!found.is_one_of(kinds) || (id != 0 && found.id != id)) {
        return {};
    }
    if (found.kind != Kind::captured) {
        return remove_slot(slot, at, freed);
    }
    const Allocation was = found;
    slots_[slot].freed = was.launched;
    slots_[slot].exported = false;
    return was;
}

Allocation *AllocationShard::find_named(AllocationName name) {
    Allocation *const found = &slots_[slot_of(SpreadAddress(name.address))];
    return found->address != 0 && found->id == name.id ? found : nullptr;
}

Allocation AllocationShard::remove(AllocationName name, FreedAddresses &freed) {
    const std::lock_guard guard(lock_);
    Allocation *const found = find_named(name);
    return found ? remove_slot(size_t(found - slots_.data()), SpreadAddress(name.address), freed)
                 : Allocation();
}

Allocation AllocationShard::set_launched(AllocationName name) {
    const std::lock_guard guard(lock_);
    Allocation *const found = find_named(name);
    if (!found || found->kind != Kind::captured || (found->launched && !found->freed)) {
        return {};
    }
    found->launched = true;
    found->freed = false;
    return *found;
}

Allocation AllocationShard::end_graph(AllocationName name, FreedAddresses &freed) {
    const std::lock_guard guard(lock_);
    Allocation *const found = find_named(name);
    if (!found || found->kind != Kind::captured) {
        return {};
    }
    if (!found->is_programs()) {
        return remove_slot(size_t(found - slots_.data()), SpreadAddress(name.address), freed);
    }
    found->kind = Kind::ordered;
    return {};
}

bool AllocationShard::set_exported(uint64_t address, uint64_t id) {
    const std::lock_guard guard(lock_);
    Allocation *const found = find_named({address, id});
    if (found) {
        found->exported = true;
    }
    return found != nullptr;
}

// Entries behind the gap, in the same run, move up if they may stand there.
inline void AllocationShard::close_gap(size_t gap) {
    Allocation *const slots = slots_.data();
    for (size_t slot = (gap + 1) & mask_; slots[slot].address != 0; slot = (slot + 1) & mask_) {
        const size_t home = home_of(SpreadAddress(slots[slot].address));
        if (((slot - home) & mask_) >= ((slot - gap) & mask_)) {
            slots[gap] = slots[slot];
            gap = slot;
        }
    }
    slots[gap].address = 0;
    count_--;
}

template <class Visit> void AllocationShard::each(Visit visit) {
    const std::lock_guard guard(lock_);
    for (const Allocation &allocation : slots_) {
        if (allocation.address != 0) {
            visit(allocation);
        }
    }
}

template <class Predicate> void AllocationShard::remove_if(Predicate predicate) {
    const std::lock_guard guard(lock_);
    for (size_t slot = 0; slot < slots_.size();) {
        if (slots_[slot].address != 0 && predicate(slots_[slot])) {
            close_gap(slot); // the next look is at the entry that moves up here
        } else {
            slot++;
        }
    }
}

// --- all of them -------------------------------------------------------------------------------

bool Allocations::insert(uint64_t address, uint64_t size, emm_context *context, uint32_t flags,
                         Kind kind, emm_context *pool) noexcept {
    const SpreadAddress at(address);
    return shard_of(at).insert(at, size, context, flags, kind, pool, freed_);
}

Allocation Allocations::find(uint64_t address) {
    const SpreadAddress at(address);
    return shard_of(at).find(at, freed_);
}

Allocation Allocations::take(uint64_t address, uint32_t kinds) {
    const SpreadAddress at(address);
    return shard_of(at).take(at, kinds, 0, freed_);
}

Allocation Allocations::take(AllocationName name) {
    const SpreadAddress at(name.address);
    return shard_of(at).take(at, on_device, name.id, freed_);
}

Allocation Allocations::remove(AllocationName name) {
    return shard_of(name.address).remove(name, freed_);
}

void Allocations::set_launched(AllocationName name) {
    const Allocation given = shard_of(name.address).set_launched(name);
    if (given.address != 0) {
        graph_figures.launched(given.id, given.address, given.size, given.context);
    }
}

Allocation Allocations::end_graph(AllocationName name) {
    return shard_of(name.address).end_graph(name, freed_);
}

bool Allocations::set_exported(uint64_t address, uint64_t id) {
    return shard_of(address).set_exported(address, id);
}

void Allocations::forget_within(uint64_t address, uint64_t size) {
    shard_of(address).forget_at(address);
    freed_.forget_within(address, size);
}

void Allocations::put_back(const Allocation &allocation) noexcept {
    shard_of(allocation.address).put_back(allocation, freed_);
}

Allocation Allocations::find_around(uint64_t address, uint32_t kinds) {
    Allocation found;
    for (AllocationShard &shard : shards_) {
        shard.each([&](const Allocation &allocation) {
            if (allocation.is_one_of(kinds) && allocation.address <= address &&
                address - allocation.address < allocation.size) {
                found = allocation;
            }
        });
    }
    return found;
}

void Allocations::forget(const emm_context *context) {
    for (AllocationShard &shard : shards_) {
        shard.remove_if([&](const Allocation &allocation) {
            return allocation.context == context && allocation.kind != Kind::registered;
        });
    }
    graph_figures.forget(context);
}

} // namespace emm::run
