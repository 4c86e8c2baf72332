#include "core/tracked_table.h"

namespace emm::core {
namespace {

// Addresses are multiples of large powers of two; all bits of the answer depend on all of theirs.
uint64_t mixed(emm_deviceptr address) {
    const uint64_t product = address * 0x9e3779b97f4a7c15u;
    return product ^ product >> 32;
}

} // namespace

size_t TrackedTable::Shard::home_of(emm_deviceptr address) const {
    return mixed(address) / shard_count & (slots.size() - 1);
}

size_t TrackedTable::Shard::slot_of(emm_deviceptr address) const {
    size_t slot = home_of(address);
    while (slots[slot].address != 0 && slots[slot].address != address) {
        slot = (slot + 1) & (slots.size() - 1);
    }
    return slot;
}

void TrackedTable::Shard::grow() {
    std::vector<TrackedAllocation> before(slots.empty() ? first_slots : slots.size() * 2);
    before.swap(slots);
    for (const TrackedAllocation &record : before) {
        if (record.address != 0) {
            slots[slot_of(record.address)] = record;
        }
    }
}

void TrackedTable::Shard::close_gap(size_t gap) noexcept {
    const size_t mask = slots.size() - 1;
    slots[gap] = {};
    count--;
    for (size_t next = (gap + 1) & mask; slots[next].address != 0; next = (next + 1) & mask) {
        const size_t home = home_of(slots[next].address);
        if (((next - home) & mask) >= ((next - gap) & mask)) { // the gap is on its way from home
            slots[gap] = slots[next];
            slots[next] = {};
            gap = next;
        }
    }
}

TrackedTable::Shard &TrackedTable::shard_of(emm_deviceptr address) noexcept {
    return shards_[mixed(address) % shard_count];
}

void TrackedTable::insert(const TrackedAllocation &record) {
    Shard &shard = shard_of(record.address);
    const std::lock_guard lock(shard.mutex);
    if ((shard.count + 1) * 4 > shard.slots.size() * 3) [[unlikely]] {
        shard.grow();
    }
    TrackedAllocation &slot = shard.slots[shard.slot_of(record.address)];
    shard.count += slot.address == 0;
    slot = record;
}

TrackedAllocation TrackedTable::take(emm_deviceptr address, const emm_context *context) noexcept {
    Shard &shard = shard_of(address);
    const std::lock_guard lock(shard.mutex);
    if (shard.count == 0) {
        return {};
    }
    const size_t slot = shard.slot_of(address);
    const TrackedAllocation found = shard.slots[slot];
    if (found.address == 0 || found.context != context) {
        return {};
    }
    shard.close_gap(slot);
    return found;
}

void TrackedTable::forget(const emm_context *context) noexcept {
    for (Shard &shard : shards_) {
        const std::lock_guard lock(shard.mutex);
        for (size_t slot = 0; slot < shard.slots.size();) {
            if (shard.slots[slot].address != 0 && shard.slots[slot].context == context) {
                shard.close_gap(slot); // what moves up here is looked at next
            } else {
                slot++;
            }
        }
    }
}

std::vector<TrackedAllocation> TrackedTable::all(const emm_context *context) const {
    std::vector<TrackedAllocation> found;
    for (const Shard &shard : shards_) {
        const std::lock_guard lock(shard.mutex);
        for (const TrackedAllocation &record : shard.slots) {
            if (record.address != 0 && (!context || record.context == context)) {
                found.push_back(record);
            }
        }
    }
    return found;
}

} // namespace emm::core
