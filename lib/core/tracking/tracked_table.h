#pragma once

#include "fence/spin_lock.h"
#include "observe/callers/stacks.h"

#include <emm/emm.h>

#include <memory>
#include <mutex>
#include <vector>

namespace emm::core {

// One live allocation, in the order of a cache line.
struct alignas(64) TrackedAllocation {
    emm_deviceptr address = 0; // as in emm_event: a host address for pinned and registered memory
    uint64_t size = 0;         // as asked for
    emm_context *context = nullptr;
    emm_stream stream = nullptr;
    uint64_t ticks = 0;                    // when it was made, by event_ticks()
    uint64_t offset = 0;                   // of the return address in the module
    const observe::Stack *stack = nullptr; // NULL: it was not asked for, or is not known
    uint32_t module = 0;                   // observe::CodePlace
    uint32_t thread : 24;                  // as the kernel numbers them, up to 2^22
    uint32_t type : 8;                     // observe::EventType of the allocation

    TrackedAllocation() : thread(0), type(0) {}
};
static_assert(sizeof(TrackedAllocation) == 64);

// Live allocations by address, in shards with a lock each. The locks are held for a few steps in
// memory, or while a shard grows, and over no call that leaves libemm.
class TrackedTable {
public:
    // A record with the same address is replaced: its memory was of a context that has died. `fill`
    // sets all members but the address in place, because a copy of freshly written data would
    // stall. Throws std::bad_alloc.
    template <class Fill> void insert(emm_deviceptr address, Fill fill) {
        const uint64_t hash = mixed(address);
        Shard &shard = shards_[hash % shard_count];
        const std::lock_guard lock(shard.lock);
        if ((shard.count + 1) * 4 > shard.capacity * 3) [[unlikely]] {
            shard.grow();
        }
        TrackedAllocation &record = shard.slots[shard.slot_of(address, hash)];
        shard.count += record.address == 0;
        record.address = address;
        fill(record);
    }
    void insert(const TrackedAllocation &record) {
        insert(record.address, [&record](TrackedAllocation &slot) { slot = record; });
    }

    // Removes and returns the address's record; address 0 if this context has no record of it.
    TrackedAllocation take(emm_deviceptr address, const emm_context *context) noexcept {
        const uint64_t hash = mixed(address);
        Shard &shard = shards_[hash % shard_count];
        const std::lock_guard lock(shard.lock);
        if (shard.count == 0) {
            return {};
        }
        const size_t slot = shard.slot_of(address, hash);
        if (shard.slots[slot].address == 0 || shard.slots[slot].context != context) {
            return {};
        }
        const TrackedAllocation found = shard.slots[slot];
        shard.close_gap(slot);
        return found;
    }

    void forget(const emm_context *context) noexcept;

    // The records of one context, or of all (NULL).
    std::vector<TrackedAllocation> all(const emm_context *context) const;

private:
    // Open addressing, at most three quarters full; a gap is closed by moving up the records behind
    // it. A slot with address 0 is free, whatever else it has.
    struct alignas(64) Shard {
        mutable SpinLock lock;
        size_t count = 0, capacity = 0; // capacity: 0 or a power of two
        std::unique_ptr<TrackedAllocation[]> slots;

        size_t home_of(uint64_t hash) const { return hash / shard_count & (capacity - 1); }
        // The slot of the address, or the one where it would go.
        size_t slot_of(emm_deviceptr address, uint64_t hash) const {
            size_t slot = home_of(hash);
            while (slots[slot].address != 0 && slots[slot].address != address) {
                slot = (slot + 1) & (capacity - 1);
            }
            return slot;
        }
        void close_gap(size_t gap) noexcept {
            slots[gap].address = 0;
            count--;
            if (slots[(gap + 1) & (capacity - 1)].address != 0) {
                move_up(gap);
            }
        }
        void move_up(size_t gap) noexcept;
        void grow();
    };
    static constexpr size_t shard_count = 64, first_capacity = 64;

    // Addresses are multiples of large powers of two, so every bit of the hash depends on all bits
    // of the address.
    static uint64_t mixed(emm_deviceptr address) {
        const uint64_t product = address * 0x9e3779b97f4a7c15u;
        return product ^ product >> 32;
    }

    Shard shards_[shard_count];
};

} // namespace emm::core
