#pragma once

#include "core/record/announced.h"
#include "core/record/deferred.h"
#include "core/record/epoch.h"
#include "core/record/owner_lock.h"
#include "driver/driver.h"
#include "loader/plugin.h"

#include <emm/emm.h>
#include <emm/plugin.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <fmt/core.h>
#include <string>
#include <vector>

namespace emm::core {

// Reasons why a context leaves the fast path, as bits of emm_context::state. Zero: the fast path.
inline constexpr uint32_t state_unserved = 1;       // no manager yet
inline constexpr uint32_t state_retired = 2;        // its manager or its CUDA context is gone
inline constexpr uint32_t state_shut_down = 4;      // emm_shutdown was called
inline constexpr uint32_t state_device_lost = 8;    // the plugin reported a sticky error
inline constexpr uint32_t state_forked = 16;        // this is a child of the process that served
inline constexpr uint32_t state_needs_current = 32; // serves, with its context made current
inline constexpr uint32_t state_watched = 64;       // serves, and its events are logged or told
inline constexpr uint32_t state_managing = 128; // the plugin makes, resets or gives up the manager
inline constexpr uint32_t state_tracked = 256;  // serves, and its live allocations have records
inline constexpr uint32_t state_serving = state_needs_current | state_watched | state_tracked;
inline constexpr uint32_t state_late = state_retired | state_shut_down | state_device_lost;

// The managers that `create` has made for a context: the plugin's, and one for each layer over it.
struct Managers {
    using Selves = std::array<emm_manager *, std::tuple_size_v<loader::Slots>>;

    std::vector<emm_manager *> made; // from the plugin upwards
    std::vector<Selves> below;       // the `self` with which each layer calls the slots below it
    Selves selves = {};              // the `self` with which emm calls each slot

    emm_manager *self(loader::Slot slot) const { return selves[static_cast<unsigned>(slot)]; }
};

} // namespace emm::core

// The record of one pool of a CUDA context: of its own pool, made once for each cuCtxGetId, or of a
// named one (emm_context_named). Never destroyed.
struct emm_context {
    // Every allocation reads these members, so they share one cache line.
    alignas(64) std::atomic<uint32_t> state{emm::core::state_unserved};
    emm_manager *manager = nullptr; // of the plugin, or of the layer that fills the next two slots
    decltype(emm_plugin::memalloc) memalloc = nullptr;
    decltype(emm_plugin::memfree) memfree = nullptr;
    // The same for pinned memory; NULL if the plugin lacks the slot.
    decltype(emm_plugin::memhostalloc) memhostalloc = nullptr;
    decltype(emm_plugin::memhostfree) memhostfree = nullptr;
    emm_manager *host_manager = nullptr;

    // The other members that a call by a handle reads.
    emm::core::Epoch epoch;

    // Constant from construction on.
    alignas(64) const emm::driver::Driver &driver;
    const CUcontext cuda_context;
    const uint64_t id;
    emm_context &group;     // the CUDA context's own record: this one, unless it is a named pool
    const std::string pool; // its name; "" for the CUDA context's own pool
    const uint32_t number;  // in the event log: `id`; a named pool has a number of its own
    int32_t device = 0;
    bool primary = false;
    uint8_t uuid[16] = {};
    uint32_t pci[3] = {}; // domain, bus, device
    // Bytes of the device when the record was made, whatever its bound.
    size_t free_at_first = 0, total_memory = 0;

    // Constant while the context serves.
    const emm::loader::Selection *selection = nullptr;
    std::atomic<bool> has_served{false}; // the program has got the context
    emm_manager *defaults = nullptr; // `self` of the slots that the host fills (default_memory.h)
    emm::core::Managers managers;    // made for it

    emm::core::PendingDeallocations pending;
    emm::core::Returns returns;
    emm::core::Announced announced;
    // Held to make, reset or retire the manager. A group's own record also holds it to make its
    // pools, and to retire them. A group's lock comes before those of its pools.
    emm::core::OwnerLock manager_lock;
    const emm_context *paused_by = nullptr; // the context that paused it last; under manager_lock
    uint64_t paused_in = 0;                 // the number of that pause
    // Pauses through this record that have paused a pool and are not undone.
    std::atomic<uint64_t> pauses{0};
    // In a group's own record: held while its pools are told the same announcement. Meanwhile no
    // pool is made, reset or given up. Taken after every manager_lock.
    emm::core::OwnerLock announcing;
    std::atomic<uint32_t> captures{0}; // announced and not ended
    std::atomic<bool> ended{false}; // of a group's own record: the CUDA context is known to be gone
    std::atomic<uint32_t> retained{0}; // emm holds the primary context
    std::atomic<bool> given_up{false}; // retired, and nothing is left of its manager
    emm_context *next = nullptr;       // in the list of all records
    // The list of a group's pools that are not given up, newest first. The group's own record holds
    // the first. A pool that has left keeps its value, so a walk that stands on it goes on.
    std::atomic<emm_context *> next_pool{nullptr};
    // References to handles whose free has failed and is to be tried again, and to handles whose
    // finalizer waits until a reset has given up their memory.
    std::atomic<emm_memory *> unfinished{nullptr};

    std::atomic<uint64_t> failures{0}; // requests for device memory that finally failed
    // For the table at the process's end (core/reports/exit_statistics.h).
    std::atomic<uint64_t> pressure_runs{0}; // times that memory was short and recovery ran
    std::atomic<bool> has_last_stats{false};
    emm_stats last_stats = {}; // from the moment before it was retired

    emm_context(const emm::driver::Driver &the_driver, CUcontext cuda, uint64_t context_id,
                const emm::core::DeferredLimits &limits)
        : driver(the_driver), cuda_context(cuda), id(context_id), group(*this),
          number(static_cast<uint32_t>(context_id)), pending(limits) {}
    emm_context(emm_context &its_group, std::string name, const emm::core::DeferredLimits &limits);

    bool is_named() const { return &group != this; }
};

// How a sentence names a context: "device 0, context 3", "device 0, context 3, pool kv-cache".
template <> struct fmt::formatter<emm_context> {
    constexpr auto parse(fmt::format_parse_context &text) { return text.begin(); }
    fmt::format_context::iterator format(const emm_context &context, fmt::format_context &to) const;
};

namespace emm::core {

// Every record, newest first. The list never shrinks, so it may be walked at any time.
emm_context *first_context() noexcept;

// add_context puts a record at the front, and a pool also at the front of its group's list.
// remove_pool takes a pool from its group's list; a group's own record is in none. One thread at a
// time calls these.
void add_context(emm_context &made) noexcept;
void remove_pool(emm_context &pool) noexcept;

// Visits the records of a group: its named pools that are not given up, newest first, then its own.
// Pools may be made and given up meanwhile.
template <class Visit> void for_each_pool(const emm_context &group, Visit visit) {
    for (emm_context *pool = group.next_pool; pool; pool = pool->next_pool) {
        visit(*pool);
    }
    visit(group.group);
}

// Visits the pools that a call means. For a group's own record: all pools, itself last.
template <class Visit> void for_each_affected(emm_context &context, Visit visit) {
    if (context.is_named()) {
        visit(context);
    } else {
        for_each_pool(context, visit);
    }
}

// The emm_context_info that a plugin gets.
emm_context_info info_of(emm_context &context);

// Finds out the device, the UUID and whether the context is a primary one.
emm_status identify(emm_context &context);

// The most memory of the device that the process may hold now: the device's total, or its bound.
uint64_t obtainable_memory(const emm_context &context) noexcept;

inline bool is_served(const emm_context &context) noexcept {
    return (context.state.load(std::memory_order_acquire) & ~state_serving) == 0;
}

// EMM_OK if the context serves, else the reason, described.
emm_status admit(const emm_context &context) noexcept;

// The same, and asks whether the CUDA context lives. For calls that return memory which they track.
emm_status admit_alive(emm_context &context) noexcept;

// EMM_OK unless `stream` belongs to another context. Each context has its own built-in streams.
emm_status expect_own(const emm_context &context, emm_stream stream) noexcept;

// For frees. True: nothing is left to do, and *ret_status is the answer.
bool is_late(emm_context &context, emm_status *ret_status) noexcept;

// Whether the CUDA context is still the one that the record was made for.
bool is_alive(const emm_context &context) noexcept;

// Like is_alive, but marks a dead context retired.
bool has_died(emm_context &context) noexcept;

// Removes the memory of ended CUDA contexts from their devices' accounts. Nothing else notices the
// end of a context that was retired before.
void forget_ended_contexts() noexcept;

// Whether a capture is announced in the CUDA context.
inline bool is_capturing(const emm_context &context) noexcept {
    return context.group.captures.load(std::memory_order_relaxed) != 0;
}

// Tries once more to free the handles of a context's `unfinished` list, which the caller has taken.
// With EMM_DEFERRED_DROP this only calls their finalizers. Set by core/handles.
using RetryFrees = void (*)(emm_memory *first, uint32_t what) noexcept;
inline constinit RetryFrees retry_frees = nullptr;

// Runs pending deallocations; if the CUDA context has died, drops them. They call finalizers of the
// program, so a thread that must not (NoProgramCode) leaves them pending.
void flush(emm_context &context) noexcept;

// Queues a free, and flushes if that passes a limit.
emm_status defer(emm_context &context, emm_deferred function, void *argument,
                 size_t bytes) noexcept;

// Rare events, counted for emm_get_counters.
struct Counters {
    std::atomic<uint64_t> late_frees{0}, flushes{0}, failed_deferred{0}, dropped{0},
        memory_retries{0};
};

inline Counters &counters() {
    static Counters the_counters;
    return the_counters;
}

// Functions that core calls in lib/sharing, which stands above it. Core itself knows neither
// exports nor imports.
struct Sharing {
    // Called when the context's memory is dropped: its exports end, and its imports are closed.
    void (*end)(emm_context &context) noexcept;

    // Gives a device access to the context's imports (flags: EMM_ACCESS_*). Later imports follow
    // `announced`. A refusal by the driver is logged.
    void (*set_access)(const emm_context &context, int32_t device, uint32_t flags);

    // The slot get_ipc_handle, if the plugin lacks it: for memory in a block of cuMemAlloc.
    emm_status (*get_legacy_handle)(emm_context &context, emm_deviceptr ptr, size_t size,
                                    emm_ipc_handle *ret_handle);

    // host->serve_ipc and host->withdraw_ipc. The handle contains a random number that an importer
    // must know.
    emm_status (*serve)(emm_context &context, const emm_ipc_source &source,
                        emm_ipc_handle *ret_handle);
    emm_status (*withdraw)(const emm_context &context, const emm_ipc_handle &handle) noexcept;
};

// Set by lib/api, which knows both, before any context is requested.
inline constinit const Sharing *sharing = nullptr;

} // namespace emm::core
