#include "core/memory/memory.h"

#include "core/memory/default_memory.h"
#include "core/record/asleep.h"
#include "core/record/context.h"
#include "core/tracking/watch.h"
#include "observe/error.h"
#include "observe/process.h"

#include <cstdint>

namespace emm::core {
namespace {

using observe::EventType;

// If the context is dead, the device lost or the driver gone, a free has nothing left to do.
emm_status forgive_late(emm_status status) noexcept {
    if (status != EMM_E_RETIRED && status != EMM_E_SHUT_DOWN && status != EMM_E_DEVICE_LOST) {
        return status;
    }
    ++counters().late_frees;
    return EMM_OK;
}

// A success without memory counts as a failure.
template <class Kind> emm_status ask_once(Kind &request) noexcept {
    const emm_status status = request.ask();
    return status < EMM_OK || request.is_filled()
               ? status
               : fail_of_null_address(request.context, Kind::slot);
}

// The final answer to a request: that of the first try, or of a second one after memory ran out.
template <class Kind>
emm_status retry_if_exhausted(Kind &request, emm_status status, const void *caller) noexcept {
    const auto once = [&] { return ask_once(request); };
    status = ask_awake(status, once);
    if (is_exhaustion(status) && request.can_be_met()) {
        // `emm pause` may come meanwhile
        status =
            recover(request.context, request.size, status, [&] { return ask_awake(once(), once); });
    }
    if (is_exhaustion(status)) {
        status = exhausted(request.context, status, request.size, caller);
    }
    if (status >= EMM_OK) {
        request.give();
    } else if (Kind::event == EventType::alloc) {
        request.context.failures.fetch_add(1, std::memory_order_relaxed);
    }
    return request.explain(status);
}

template <class Kind> emm_status admit_and_ask(Kind &request, const void *caller) noexcept {
    EMM_TRY(admit(request.context));
    return retry_if_exhausted(request, ask_once(request), caller);
}

// A free off the fast path; `call` asks the plugin. Freeing NULL calls no plugin.
template <class Call>
emm_status free_slowly(emm_context &context, EventType event, emm_deviceptr address, size_t size,
                       emm_stream stream, const void *caller, Call call) noexcept {
    if (observe::is_forked_child()) {
        return observe::refuse_forked_child();
    }
    if (address == 0) {
        return EMM_OK;
    }
    const auto free = [&] {
        emm_status status = EMM_OK;
        return is_late(context, &status) ? status : forgive_late(call());
    };
    if (!is_watched(context)) {
        return free();
    }
    WatchedCall watch(context, event, address, size, stream, caller);
    Untracked untracked(context, address);
    return watch.done(untracked.freed(free()));
}

// Only the records of live allocations keep the context off the fast path.
bool is_just_tracked(const emm_context &context) noexcept {
    return context.state.load(std::memory_order_acquire) == state_tracked;
}

// The fast path applies: nothing is unusual, and the plugin pins memory itself.
bool pins_at_once(const emm_context &context) noexcept {
    return context.state.load(std::memory_order_acquire) == 0 && context.memhostalloc;
}
bool pins_tracked(const emm_context &context) noexcept {
    return is_just_tracked(context) && context.memhostalloc;
}

// Allocates on the fast path, and makes a record.
template <class Kind> emm_status allocate_tracked(Kind &request, const void *caller) {
    const emm_status status = allocate(request, caller);
    if (status >= EMM_OK) [[likely]] {
        track(request.context, Kind::event, request.address(), request.size, request.ordered_by(),
              caller);
    }
    return status;
}

// If the thread is cancelled in the plugin's function, there is no record.
template <class Function, class... Arguments>
emm_status free_tracked(emm_context &context, const char *slot, emm_deviceptr address,
                        Function function, Arguments... arguments) {
    Untracked untracked(context, address);
    return untracked.freed(free_with(context, slot, function, arguments...));
}

emm_status trim_manager(emm_context &context, size_t keep_bytes, size_t *ret_released) noexcept {
    EMM_TRY(admit_alive(context));
    size_t released = 0;
    const Returns::Scope returning(context.returns);
    if (!context.pending.in_section()) {
        flush(context); // the plugin may cache memory of pending frees, so they run first
        defaults_of(context).retry_all();
    }
    const emm_status status = EMM_CALL(context, trim, keep_bytes, &released);
    if (status >= EMM_OK && !context.pending.in_section()) {
        flush(context); // frees that the trim has put on the queue
    }
    if (status >= EMM_OK && ret_released) {
        *ret_released = released;
    }
    return status;
}

} // namespace

emm_status explain_mapping(const emm_context &context, uint32_t flags, emm_status status) noexcept {
    int able = 1;
    if (status >= EMM_OK || (flags & EMM_HOST_MAPPED) == 0 ||
        context.driver.cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
                                            context.device) != CUDA_SUCCESS ||
        able != 0) {
        return status;
    }
    return observe::fail(EMM_E_NOT_SUPPORTED, 0,
                         "device {} cannot map host memory; allocate it without EMM_HOST_MAPPED",
                         context.device);
}

template <class Kind>
static emm_status allocate_slowly(Kind &request, const void *caller) noexcept {
    if (observe::is_forked_child()) {
        return observe::refuse_forked_child();
    }
    if (request.size == 0) {
        request.give(); // size 0: address 0
        return EMM_OK;
    }
    if (!is_watched(request.context)) {
        return admit_and_ask(request, caller);
    }
    WatchedCall watch(request.context, Kind::event, 0, request.size, request.ordered_by(), caller);
    const emm_status status = admit_and_ask(request, caller);
    return watch.allocated(status, request.address());
}

template <class Kind> emm_status allocate_otherwise(Kind &request, const void *caller) {
    return request.size != 0 && is_just_tracked(request.context) ? allocate_tracked(request, caller)
                                                                 : allocate_slowly(request, caller);
}

template <class Kind>
emm_status retry_failed(Kind &request, emm_status status, const void *caller) noexcept {
    status = status < EMM_OK ? describe_failure(request.context, status, Kind::slot)
                             : fail_of_null_address(request.context, Kind::slot);
    return retry_if_exhausted(request, status, caller);
}

template emm_status allocate_otherwise(DeviceRequest &, const void *);
template emm_status retry_failed(DeviceRequest &, emm_status, const void *) noexcept;

emm_status describe_failed_free(emm_context &context, emm_status status,
                                const char *slot) noexcept {
    return forgive_late(describe_failure(context, status, slot));
}

emm_status memfree_otherwise(emm_context &context, emm_deviceptr ptr, size_t size,
                             emm_stream stream, const void *caller) {
    if (ptr != 0 && is_just_tracked(context)) {
        return free_tracked(context, "memfree", ptr, context.memfree, context.manager, ptr, size,
                            stream);
    }
    return free_slowly(context, EventType::free, ptr, size, stream, caller,
                       [&] { return EMM_CALL(context, memfree, ptr, size, stream); });
}

emm_status memhostalloc(emm_context &context, size_t size, uint32_t flags, void **ret_host,
                        emm_deviceptr *ret_device, const void *caller) {
    Request<EventType::host_alloc> request(context, nullptr, size, flags, ret_host, ret_device);
    if (size != 0 && pins_at_once(context)) [[likely]] {
        return allocate(request);
    }
    return size != 0 && pins_tracked(context) ? allocate_tracked(request, caller)
                                              : allocate_slowly(request, caller);
}

emm_status memhostfree(emm_context &context, void *host, size_t size, uint32_t flags,
                       emm_stream stream, const void *caller) {
    if (host && pins_at_once(context)) [[likely]] {
        return free_with(context, "memhostfree", context.memhostfree, context.host_manager, host,
                         size, flags, stream);
    }
    if (host && pins_tracked(context)) {
        return free_tracked(context, "memhostfree", address_of(host), context.memhostfree,
                            context.host_manager, host, size, flags, stream);
    }
    return free_slowly(context, EventType::host_free, address_of(host), size, stream, caller,
                       [&] { return EMM_CALL(context, memhostfree, host, size, flags, stream); });
}

emm_status mempin(emm_context &context, void *host, size_t size, uint32_t flags,
                  emm_deviceptr *ret_device, const void *caller) noexcept {
    Request<EventType::pin> request(context, host, size, flags, nullptr, ret_device);
    return allocate_slowly(request, caller);
}

emm_status memunpin(emm_context &context, void *host, size_t size, const void *caller) noexcept {
    return free_slowly(context, EventType::unpin, address_of(host), size, EMM_STREAM_UNORDERED,
                       caller, [&] { return EMM_CALL(context, memunpin, host, size); });
}

emm_status memallocmanaged(emm_context &context, size_t size, uint32_t flags,
                           emm_deviceptr *ret_ptr, const void *caller) noexcept {
    Request<EventType::managed_alloc> request(context, nullptr, size, flags, nullptr, ret_ptr);
    return allocate_slowly(request, caller);
}

emm_status memfreemanaged(emm_context &context, emm_deviceptr ptr, size_t size, emm_stream stream,
                          const void *caller) noexcept {
    return free_slowly(context, EventType::managed_free, ptr, size, stream, caller,
                       [&] { return EMM_CALL(context, memfreemanaged, ptr, size, stream); });
}

// A trim that keeps everything only finds out which work is complete: no event.
emm_status trim(emm_context &context, size_t keep_bytes, size_t *ret_released,
                const void *caller) noexcept {
    if (!is_watched(context) || keep_bytes == SIZE_MAX) {
        return trim_manager(context, keep_bytes, ret_released);
    }
    WatchedCall watch(context, EventType::trim, 0, keep_bytes, EMM_STREAM_UNORDERED, caller);
    return watch.done(trim_manager(context, keep_bytes, ret_released));
}

emm_status reset_peaks(emm_context &context) noexcept {
    EMM_TRY(admit(context));
    return EMM_CALL(context, reset_peaks);
}

emm_status get_stats(emm_context &context, emm_stats *ret_stats) noexcept {
    EMM_TRY(admit(context));
    Filled<emm_stats> filled;
    emm_stats &stats = *filled.out();
    emm_status status = EMM_CALL(context, get_stats, &stats);
    status = filled.check_overrun(context, status, "get_stats");
    EMM_TRY(status);
    if (context.selection->plugin->bottom().defaults(loader::Slot::memhostalloc)) {
        // layers have their own, in addition
        const DefaultMemory &defaults = defaults_of(context);
        const uint64_t live = defaults.pinned_bytes();
        stats.host_live_bytes += live;
        stats.host_reserved_bytes += live + defaults.freed_pinned_bytes();
    }
    stats.failures = context.failures.load(std::memory_order_relaxed);
    emm_copy_sized(ret_stats, &stats);
    return status;
}

bool keeps_figures(const emm_context &context) noexcept {
    return context.selection && !context.selection->plugin->defaults(loader::Slot::get_stats);
}

emm_status query(emm_context &context, emm_deviceptr ptr, emm_block_info *ret_info) noexcept {
    EMM_TRY(admit(context));
    Filled<emm_block_info> filled;
    emm_status status = EMM_CALL(context, query, ptr, filled.out());
    status = filled.check_overrun(context, status, "query");
    if (status >= EMM_OK) {
        emm_copy_sized(ret_info, filled.out());
    }
    return status;
}

emm_status get_memory_info(emm_context &context, size_t *ret_free, size_t *ret_total) noexcept {
    EMM_TRY(admit(context));
    size_t free = 0, total = 0;
    const emm_status status = EMM_CALL(context, get_memory_info, &free, &total);
    EMM_TRY(status);
    if (total == 0) {
        return observe::fail(EMM_E_PLUGIN_FAILED, 0,
                             "plugin {}, get_memory_info: it returned success without a total",
                             context.selection->plugin->name);
    }
    *ret_free = free;
    *ret_total = total;
    return status;
}

} // namespace emm::core
