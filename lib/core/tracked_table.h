#pragma once

#include "core/tracking.h"

#include <mutex>

namespace emm::core {

// Live allocations by address, in shards with a lock each. The locks are held for a few steps in
// memory, or while a shard grows, and over no call that leaves libemm.
class TrackedTable {
public:
    // In place of one that is known to be there: that was memory of a context that has died. Throws
    // std::bad_alloc.
    void insert(const TrackedAllocation &record);

    // The record of that address, which is removed; address 0: none, or one of another context.
    TrackedAllocation take(emm_deviceptr address, const emm_context *context) noexcept;

    void forget(const emm_context *context) noexcept;

    // Of one context, or of all (NULL).
    std::vector<TrackedAllocation> all(const emm_context *context) const;

private:
    // Open addressing, at most three quarters full; a gap is closed by moving up what follows.
    struct alignas(64) Shard {
        mutable std::mutex mutex;
        std::vector<TrackedAllocation> slots;
        size_t count = 0;

        size_t home_of(emm_deviceptr address) const;
        size_t slot_of(emm_deviceptr address) const; // where it is, or would be
        void grow();
        void close_gap(size_t gap) noexcept;
    };
    static constexpr size_t shard_count = 64, first_slots = 64;

    Shard &shard_of(emm_deviceptr address) noexcept;

    Shard shards_[shard_count];
};

} // namespace emm::core
