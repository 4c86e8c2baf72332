#pragma once

#include "core/record/context.h"
#include "core/tracking/tracked_table.h"
#include "observe/callers/track_options.h"
#include "observe/events/record.h"

#include <vector>

// Live allocations, and who asked for each (EMM_TRACK). Calls leave the fast path for this file
// only if state_tracked is set (core/memory/memory.h), so never without EMM_TRACK.
namespace emm::core {

// Reads EMM_TRACK before any context is watched. Only the first call decides; it warns if the value
// makes no sense.
observe::TrackOptions open_tracking() noexcept;

// The depth that open_tracking decided. With `none`, no function below is called.
inline std::atomic<observe::TrackDepth> track_depth{observe::TrackDepth::none};
inline bool is_tracking() noexcept {
    return track_depth.load(std::memory_order_acquire) != observe::TrackDepth::none;
}

// Records a successful allocation. `caller` is the return address of the call into libemm, or one
// further out. Returns the stack, if there is one. If there is no memory for the record, the record
// is missing, and counted (lost_records).
const observe::Stack *track(emm_context &context, observe::EventType type, emm_deviceptr address,
                            size_t size, emm_stream stream, const void *caller) noexcept;

// The stack that an allocation by `caller` would have now; NULL if it is not known.
const observe::Stack *stack_of(const void *caller) noexcept;

// Takes out the record of an allocation that is about to be freed, for a scope. So the record is
// gone before another thread can be given the address. If the free fails, the record is put back.
class Untracked {
public:
    Untracked(const emm_context &context, emm_deviceptr address) noexcept;
    emm_status freed(emm_status status) noexcept; // returns `status`

private:
    const TrackedAllocation record_; // address 0: there is none
};

// EMM_EVENT_DEVICE and so on, of an allocation or a free.
inline uint32_t memory_of(observe::EventType type) noexcept {
    return static_cast<uint32_t>(type) / 2 + EMM_EVENT_DEVICE;
}

// Forgets the records of a context whose memory is gone.
void forget_tracked(const emm_context &context) noexcept;

// The records of one context, or of all (NULL), in no particular order. Throws std::bad_alloc.
std::vector<TrackedAllocation> tracked_allocations(const emm_context *context);

// Memory of a device that the program has taken from the driver itself: see
// emm_track_driver_memory.
struct DriverMemory {
    uint64_t id = 0;
    uint64_t size = 0; // 0: a pool, which grows
    int32_t device = 0;
    uint32_t module = 0; // observe::CodePlace: of the call
};
emm_status track_driver_memory(int32_t device, uint64_t size, const void *caller, uint64_t &ret_id);
emm_status untrack_driver_memory(uint64_t id) noexcept;
std::vector<DriverMemory> tracked_driver_memory(int32_t device); // throws std::bad_alloc

uint64_t lost_records() noexcept;

// As emm_foreach_allocation.
emm_status foreach_allocation(const emm_context &context, emm_allocation_visitor visit,
                              void *user_data);

} // namespace emm::core
