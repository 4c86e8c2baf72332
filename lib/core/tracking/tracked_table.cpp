#include "core/tracking/tracked_table.h"

#include <utility>

namespace emm::core {

void TrackedTable::Shard::grow() {
    const size_t before = capacity;
    auto grown = std::make_unique<TrackedAllocation[]>(before == 0 ? first_capacity : before * 2);
    const auto old = std::exchange(slots, std::move(grown));
    capacity = before == 0 ? first_capacity : before * 2;
    for (size_t slot = 0; slot < before; slot++) {
        const TrackedAllocation &record = old[slot];
        if (record.address != 0) {
            slots[slot_of(record.address, mixed(record.address))] = record;
        }
    }
}

void TrackedTable::Shard::move_up(size_t gap) noexcept {
    const size_t mask = capacity - 1;
    for (size_t next = (gap + 1) & mask; slots[next].address != 0; next = (next + 1) & mask) {
        const size_t home = home_of(mixed(slots[next].address));
        // The gap lies between the record's home and its slot.
        if (((next - home) & mask) >= ((next - gap) & mask)) {
            slots[gap] = slots[next];
            slots[next].address = 0;
            gap = next;
        }
    }
}

void TrackedTable::forget(const emm_context *context) noexcept {
    for (Shard &shard : shards_) {
        const std::lock_guard lock(shard.lock);
        for (size_t slot = 0; slot < shard.capacity;) {
            if (shard.slots[slot].address != 0 && shard.slots[slot].context == context) {
                shard.close_gap(slot); // the loop looks next at the record that moves up here
            } else {
                slot++;
            }
        }
    }
}

std::vector<TrackedAllocation> TrackedTable::all(const emm_context *context) const {
    std::vector<TrackedAllocation> found;
    for (const Shard &shard : shards_) {
        const std::lock_guard lock(shard.lock);
        for (size_t slot = 0; slot < shard.capacity; slot++) {
            const TrackedAllocation &record = shard.slots[slot];
            if (record.address != 0 && (!context || record.context == context)) {
                found.push_back(record);
            }
        }
    }
    return found;
}

} // namespace emm::core
