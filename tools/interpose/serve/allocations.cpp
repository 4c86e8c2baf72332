#include "allocations.h"

namespace emm::run {
namespace {

constexpr size_t first_slots = 64;

// Beyond the ids that the driver gives, which count from 1.
constexpr uint64_t before_ids = uint64_t(1) << 62;

// Addresses of the driver are multiples of 256 at least; all bits above count.
uint64_t spread(uint64_t address) {
    uint64_t bits = address * 0x9e3779b97f4a7c15u;
    return bits ^ (bits >> 32);
}

} // namespace

// --- a shard -----------------------------------------------------------------------------------

size_t AllocationShard::slot_of(uint64_t address) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = (spread(address) >> 8) & mask;
    while (slots_[slot].address != 0 && slots_[slot].address != address) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

void AllocationShard::grow() {
    std::vector<Allocation> old(slots_.empty() ? first_slots : 2 * slots_.size());
    old.swap(slots_);
    for (const Allocation &allocation : old) {
        if (allocation.address != 0) {
            slots_[slot_of(allocation.address)] = allocation;
        }
    }
}

Allocation &AllocationShard::place(const Allocation &allocation) {
    if (4 * (count_ + 1) > 3 * slots_.size()) {
        grow();
    }
    Allocation &slot = slots_[slot_of(allocation.address)];
    count_ += slot.address == 0;
    slot = allocation;
    forget_freed_there(allocation.address);
    return slot;
}

AllocationShard::Freed &AllocationShard::freed_slot(uint64_t address) {
    return freed_[(spread(address) >> 8) % freed_slots];
}

void AllocationShard::forget_freed_there(uint64_t address) {
    Freed &slot = freed_slot(address);
    slot.address = slot.address == address ? 0 : slot.address;
}

void AllocationShard::forget_at(uint64_t address) {
    const std::lock_guard guard(lock_);
    if (!slots_.empty()) {
        const size_t slot = slot_of(address);
        if (slots_[slot].address != 0) {
            close_gap(slot);
        }
    }
}

Allocation AllocationShard::none_at(uint64_t address, const DriverRegions &regions) {
    const Freed &slot = freed_slot(address);
    Allocation none;
    none.freed = slot.address == address && !regions.is_given_since(slot.moment, address);
    return none;
}

void AllocationShard::insert(const Allocation &allocation, size_t shard, size_t shards) {
    const std::lock_guard guard(lock_);
    place(allocation).id = before_ids + ++last_id_ * shards + shard;
}

void AllocationShard::put_back(const Allocation &allocation) {
    const std::lock_guard guard(lock_);
    place(allocation);
}

Allocation AllocationShard::find(uint64_t address, const DriverRegions &regions) {
    const std::lock_guard guard(lock_);
    const Allocation found = slots_.empty() ? Allocation() : slots_[slot_of(address)];
    return found.address == 0 ? none_at(address, regions) : found;
}

inline Allocation AllocationShard::remove_slot(size_t slot, const DriverRegions &regions) {
    const Allocation removed = slots_[slot];
    close_gap(slot);
    freed_slot(removed.address) = {removed.address, regions.now()};
    return removed;
}

Allocation AllocationShard::take(uint64_t address, uint32_t kinds, uint64_t id,
                                 const DriverRegions &regions) {
    const std::lock_guard guard(lock_);
    if (slots_.empty()) {
        return {};
    }
    const size_t slot = slot_of(address);
    const Allocation found = slots_[slot];
    if (found.address == 0) {
        return none_at(address, regions);
    }
    if (!found.is_one_of(kinds) || (id != 0 && found.id != id)) {
        return {};
    }
    if (found.kind != Kind::captured) {
        return remove_slot(slot, regions);
    }
    slots_[slot].freed = found.launched;
    slots_[slot].exported = false;
    return found;
}

Allocation *AllocationShard::find_named(AllocationName name) {
    Allocation *const found = slots_.empty() ? nullptr : &slots_[slot_of(name.address)];
    return found && found->address != 0 && found->id == name.id ? found : nullptr;
}

Allocation AllocationShard::remove(AllocationName name, const DriverRegions &regions) {
    const std::lock_guard guard(lock_);
    Allocation *const found = find_named(name);
    return found ? remove_slot(size_t(found - slots_.data()), regions) : Allocation();
}

void AllocationShard::set_launched(AllocationName name) {
    const std::lock_guard guard(lock_);
    Allocation *const found = find_named(name);
    if (found && found->kind == Kind::captured) {
        found->launched = true;
        found->freed = false;
    }
}

Allocation AllocationShard::end_graph(AllocationName name, const DriverRegions &regions) {
    const std::lock_guard guard(lock_);
    Allocation *const found = find_named(name);
    if (!found || found->kind != Kind::captured) {
        return {};
    }
    if (found->freed || found->is_waiting()) {
        return remove_slot(size_t(found - slots_.data()), regions);
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

// What follows in the same run moves up, if it may stand there.
void AllocationShard::close_gap(size_t gap) {
    const size_t mask = slots_.size() - 1;
    for (size_t slot = (gap + 1) & mask; slots_[slot].address != 0; slot = (slot + 1) & mask) {
        const size_t home = (spread(slots_[slot].address) >> 8) & mask;
        if (((slot - home) & mask) >= ((slot - gap) & mask)) {
            slots_[gap] = slots_[slot];
            gap = slot;
        }
    }
    slots_[gap] = {};
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
            close_gap(slot); // what moves up here is looked at next
        } else {
            slot++;
        }
    }
}

// --- all of them -------------------------------------------------------------------------------

size_t Allocations::shard_number(uint64_t address) {
    return spread(address) % shard_count;
}

bool Allocations::insert(const Allocation &allocation) noexcept {
    const size_t shard = shard_number(allocation.address);
    try {
        shards_[shard].insert(allocation, shard, shard_count);
        return true;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

Allocation Allocations::find(uint64_t address) {
    return address ? shard_of(address).find(address, regions_) : Allocation();
}

Allocation Allocations::take(uint64_t address, uint32_t kinds) {
    return address ? shard_of(address).take(address, kinds, 0, regions_) : Allocation();
}

Allocation Allocations::take(AllocationName name) {
    return shard_of(name.address).take(name.address, on_device, name.id, regions_);
}

Allocation Allocations::remove(AllocationName name) {
    return shard_of(name.address).remove(name, regions_);
}

void Allocations::set_launched(AllocationName name) {
    shard_of(name.address).set_launched(name);
}

Allocation Allocations::end_graph(AllocationName name) {
    return shard_of(name.address).end_graph(name, regions_);
}

bool Allocations::set_exported(uint64_t address, uint64_t id) {
    return shard_of(address).set_exported(address, id);
}

void Allocations::forget_within(uint64_t address, uint64_t size) {
    shard_of(address).forget_at(address);
    regions_.add(address, size);
}

// There is room: it has just left.
void Allocations::put_back(const Allocation &allocation) noexcept {
    try {
        shard_of(allocation.address).put_back(allocation);
    } catch (const std::bad_alloc &) {
        return; // another allocation has taken that room: the driver will refuse the next free
    }
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
}

} // namespace emm::run
