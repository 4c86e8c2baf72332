#pragma once

#include "observe/memory_report.h"

#include <emm/emm.h>

#include <functional>
#include <optional>
#include <string>

// Recovery when any kind of memory has run out. The steps stop as soon as the allocation succeeds.
// 1. The pending frees of the context run, its plugin trims, and memory that other threads are
// giving back arrives. The allocation is tried again.
// 2. If the driver is short of memory, other contexts may hold it. Step 1 is done in each of them:
// in all contexts of the device, or for host memory in all of the process. The allocation is tried
// again.
// 3. The application gives memory back, to any context. Then steps 1 and 2 are done again.
// 4. Processes that share the device's bound (EMM_LIMIT_SHARED) give memory back, and the
// allocation is tried again.
// Inside a deferred section nothing is returned to the driver, so only the application is asked. A
// context is left out while it is being made, reset or retired.
namespace emm::core {

// `status` is the allocation's failure, and `again` tries again: returns its last answer.
emm_status recover(emm_context &context, size_t size, emm_status status,
                   const std::function<emm_status()> &again) noexcept;

// The same for memory that the program is about to take from the driver itself and that exceeds the
// device's bound. `again` tries again; returns its last answer.
bool make_room(int32_t device, size_t size, const std::function<bool()> &again) noexcept;

// All managers give their caches back to the driver. Then this process returns its unused part of
// shared budgets to the group. Waits for no other thread: while the process sleeps by emm pause,
// pending frees stay, because their finalizers may wait for a call that is held.
void give_back_idle() noexcept;

// Asks the processes that share this one's budget to give back their caches, and waits for at most
// half a second. False: no process has answered. Set when libemm is loaded.
using AskNeighbours = bool (*)() noexcept;
inline constinit AskNeighbours ask_neighbours = nullptr;

// Describes the final failure: the request, the driver's figures, and the plugin's words. `caller`
// is the requester; NULL: not known. May have a report written.
emm_status exhausted(emm_context &context, emm_status status, size_t size,
                     const void *caller) noexcept;

// Reports who holds the memory when it has finally run out. Set by core/reports. Returns the
// report as JSON, or "" if no report is wanted.
using ReportExhaustion = std::string (*)(emm_context &context, uint64_t bytes, bool of_host,
                                         const void *caller) noexcept;
inline constinit ReportExhaustion report_exhaustion = nullptr;

// Free and total memory of the context's device, for all processes. Takes 4 us; empty if the driver
// does not tell.
std::optional<observe::MemoryReport::Driver> driver_figures(const emm_context &context) noexcept;
// The same without the device's bound.
std::optional<observe::MemoryReport::Driver> device_figures(const emm_context &context) noexcept;

inline bool is_exhaustion(emm_status status) noexcept {
    return status == EMM_E_OUT_OF_MEMORY || status == EMM_E_OUT_OF_HOST_MEMORY;
}

// Replaces the application's callback; returns the previous one.
emm_pressure_callback_info set_pressure_callback(const emm_pressure_callback_info &next);

// Calls the application's callback, and returns the bytes that it says it gave back. Returns 0
// without a callback, from within one, and on a thread that must not run code of the program.
size_t press(emm_context &context, size_t bytes) noexcept;
bool is_in_pressure_callback() noexcept; // whether this thread is within the callback

} // namespace emm::core
