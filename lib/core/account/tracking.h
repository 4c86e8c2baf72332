#pragma once

#include "core/account/tracked_table.h"
#include "core/record/context.h"
#include "observe/callers/track_options.h"
#include "observe/events/record.h"

#include <vector>

// Which allocations are live, and who asked for each (EMM_TRACK). Calls come here from beside the
// fast path, to which state_tracked sends them (core/memory/memory.h): without EMM_TRACK nothing
// does.
namespace emm::core {

// What EMM_TRACK says; the first call decides, and warns if it makes no sense. Before any context
// is watched.
observe::TrackOptions open_tracking() noexcept;

// What it decided: with `none` nothing below is called.
inline std::atomic<observe::TrackDepth> track_depth{observe::TrackDepth::none};
inline bool is_tracking() noexcept {
    return track_depth.load(std::memory_order_acquire) != observe::TrackDepth::none;
}

// An allocation has succeeded; `caller` is the return address of the call into libemm, or one
// further out. Answers the stack, if there is one. Without memory for the record it is missing, and
// counted (lost_records).
const observe::Stack *track(emm_context &context, observe::EventType type, emm_deviceptr address,
                            size_t size, emm_stream stream, const void *caller) noexcept;

// The stack that an allocation by `caller` would have now; NULL: nothing is known of it.
const observe::Stack *stack_of(const void *caller) noexcept;

// The record of an allocation that is about to be freed, for a scope: it is gone before another
// thread can be given the address. Put back if the free fails.
class Untracked {
public:
    Untracked(const emm_context &context, emm_deviceptr address) noexcept;
    emm_status freed(emm_status status) noexcept; // answers `status`

private:
    const TrackedAllocation record_; // address 0: there is none
};

// EMM_EVENT_DEVICE and so on, of an allocation or a free.
inline uint32_t memory_of(observe::EventType type) noexcept {
    return static_cast<uint32_t>(type) / 2 + EMM_EVENT_DEVICE;
}

// The context's memory is gone.
void forget_tracked(const emm_context &context) noexcept;

// Those of one context, or of all (NULL), in no particular order. Throws std::bad_alloc.
std::vector<TrackedAllocation> tracked_allocations(const emm_context *context);

// Memory of a device that the program has taken from the driver itself: as
// emm_track_driver_memory.
struct DriverMemory {
    uint64_t id = 0;
    uint64_t size = 0; // of a pool 0: it grows
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
