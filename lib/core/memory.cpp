#include "core/memory.h"

#include "core/call.h"
#include "core/counters.h"
#include "core/filled.h"
#include "core/recovery.h"
#include "core/watch.h"
#include "observe/error.h"
#include "observe/process.h"

#include <string>

namespace emm::core {
namespace {

using observe::EventType;

// A free that finds its context dead, its device lost or the driver gone has nothing left to do.
emm_status forgive_late(emm_status status) noexcept {
    if (status != EMM_E_RETIRED && status != EMM_E_SHUT_DOWN && status != EMM_E_DEVICE_LOST) {
        return status;
    }
    ++counters().late_frees;
    return EMM_OK;
}

// It serves, and the only unusual thing is that its events are recorded.
bool serves_as_it_is(const emm_context &context) noexcept {
    return context.state.load(std::memory_order_acquire) == state_watched;
}

// A success without an output is none.
emm_status check_output(const emm_context &context, emm_status status, bool is_there,
                        const char *slot) noexcept {
    return status < EMM_OK || is_there ? status : conclude_nothing(context, slot);
}

emm_status ask_memalloc(emm_context &context, size_t size, emm_stream stream,
                        emm_deviceptr *ret_ptr) noexcept {
    *ret_ptr = 0;
    const emm_status status = EMM_CALL(context, memalloc, size, stream, ret_ptr);
    return check_output(context, status, *ret_ptr != 0, "memalloc");
}

emm_status ask_memhostalloc(emm_context &context, size_t size, uint32_t flags, void **ret_host,
                            emm_deviceptr *ret_device) noexcept {
    *ret_host = nullptr;
    *ret_device = 0;
    const emm_status status = EMM_CALL(context, memhostalloc, size, flags, ret_host, ret_device);
    return check_output(context, status, *ret_host, "memhostalloc");
}

emm_status ask_memallocmanaged(emm_context &context, size_t size, uint32_t flags,
                               emm_deviceptr *ret_ptr) noexcept {
    *ret_ptr = 0;
    const emm_status status = EMM_CALL(context, memallocmanaged, size, flags, ret_ptr);
    return check_output(context, status, *ret_ptr != 0, "memallocmanaged");
}

// After memory has run out. For more than the device has no cache is given up: nothing that comes
// back could make room for it.
emm_status memalloc_again(emm_context &context, emm_status status, size_t size, emm_stream stream,
                          emm_deviceptr *ret_ptr) noexcept {
    return size > context.total_memory ? exhausted(context, status, size)
                                       : recover_and_retry(context, size, [&] {
                                             return ask_memalloc(context, size, stream, ret_ptr);
                                         });
}

emm_status memalloc_admitted(emm_context &context, size_t size, emm_stream stream,
                             emm_deviceptr *ret_ptr) noexcept {
    emm_status status = admit(context);
    if (status != EMM_OK) {
        return status;
    }
    emm_deviceptr ptr = 0;
    status = ask_memalloc(context, size, stream, &ptr);
    if (is_exhaustion(status)) {
        status = memalloc_again(context, status, size, stream, &ptr);
    }
    if (status >= EMM_OK) {
        *ret_ptr = ptr;
    }
    return status;
}

emm_status memfree_admitted(emm_context &context, emm_deviceptr ptr, size_t size,
                            emm_stream stream) noexcept {
    emm_status status = EMM_OK;
    return is_late(context, &status) ? status
                                     : forgive_late(EMM_CALL(context, memfree, ptr, size, stream));
}

// What a device that cannot map host memory fails with says nothing of that: the driver's answer is
// an invalid value.
emm_status explain_mapping(const emm_context &context, uint32_t flags, emm_status status) noexcept {
    int able = 1;
    if (status >= EMM_OK || (flags & EMM_HOST_MAPPED) == 0 ||
        context.driver.cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
                                            context.device) != CUDA_SUCCESS ||
        able != 0) {
        return status;
    }
    return observe::fail(EMM_E_NOT_SUPPORTED, 0, [&] {
        return "device " + std::to_string(context.device) +
               " cannot map host memory: it can only be pinned, without EMM_HOST_MAPPED";
    });
}

emm_status host_alloc(emm_context &context, size_t size, uint32_t flags, void **ret_host,
                      emm_deviceptr *ret_device) noexcept {
    void *host = nullptr;
    emm_deviceptr device = 0;
    emm_status status = EMM_OK;
    if (size != 0) {
        status = admit(context);
        if (status != EMM_OK) {
            return status;
        }
        status = retry_once(context, size,
                            [&] { return ask_memhostalloc(context, size, flags, &host, &device); });
    }
    if (status >= EMM_OK) {
        *ret_host = host;
        if (ret_device) {
            *ret_device = device;
        }
    }
    return explain_mapping(context, flags, status);
}

[[gnu::noinline, gnu::cold]] emm_status host_alloc_failed(emm_context &context, emm_status status,
                                                          size_t size, uint32_t flags,
                                                          void **ret_host,
                                                          emm_deviceptr *ret_device) noexcept {
    if (!is_exhaustion(status)) {
        return explain_mapping(context, flags, conclude(context, status, "memhostalloc"));
    }
    void *host = nullptr;
    emm_deviceptr device = 0;
    status = recover_and_retry(
        context, size, [&] { return ask_memhostalloc(context, size, flags, &host, &device); });
    if (status >= EMM_OK) {
        *ret_host = host;
        if (ret_device) {
            *ret_device = device;
        }
    }
    return explain_mapping(context, flags, status);
}

emm_status host_free(emm_context &context, void *host, size_t size, uint32_t flags,
                     emm_stream stream) noexcept {
    emm_status status = EMM_OK;
    if (!host || is_late(context, &status)) {
        return status;
    }
    return forgive_late(EMM_CALL(context, memhostfree, host, size, flags, stream));
}

// Nothing is unusual, and the plugin pins memory itself.
bool pins_at_once(const emm_context &context) noexcept {
    return context.state.load(std::memory_order_acquire) == 0 && context.memhostalloc;
}

// One indirect call to the plugin, as for device memory.
emm_status host_alloc_served(emm_context &context, size_t size, uint32_t flags, void **ret_host,
                             emm_deviceptr *ret_device) {
    void *host = nullptr;
    emm_deviceptr device = 0;
    emm_status status;
    try {
        status = context.memhostalloc(context.manager, size, flags, &host, &device);
    } catch (const abi::__forced_unwind &) {
        throw; // the thread is cancelled
    } catch (...) {
        return conclude_exception(context, "memhostalloc");
    }
    if (status < EMM_OK) [[unlikely]] {
        return host_alloc_failed(context, status, size, flags, ret_host, ret_device);
    }
    if (!host) [[unlikely]] {
        return conclude_nothing(context, "memhostalloc");
    }
    *ret_host = host;
    if (ret_device) {
        *ret_device = device;
    }
    return status;
}

emm_status host_free_served(emm_context &context, void *host, size_t size, uint32_t flags,
                            emm_stream stream) {
    emm_status status;
    try {
        status = context.memhostfree(context.manager, host, size, flags, stream);
    } catch (const abi::__forced_unwind &) {
        throw; // the thread is cancelled
    } catch (...) {
        return conclude_exception(context, "memhostfree");
    }
    return status >= EMM_OK ? status : forgive_late(conclude(context, status, "memhostfree"));
}

emm_status pin(emm_context &context, void *host, size_t size, uint32_t flags,
               emm_deviceptr *ret_device) noexcept {
    emm_deviceptr device = 0;
    emm_status status = EMM_OK;
    if (size != 0) {
        status = admit(context);
        if (status != EMM_OK) {
            return status;
        }
        status = retry_once(context, size,
                            [&] { return EMM_CALL(context, mempin, host, size, flags, &device); });
    }
    if (status >= EMM_OK && ret_device) {
        *ret_device = device;
    }
    return explain_mapping(context, flags, status);
}

emm_status unpin(emm_context &context, void *host, size_t size) noexcept {
    emm_status status = EMM_OK;
    if (!host || is_late(context, &status)) {
        return status;
    }
    return forgive_late(EMM_CALL(context, memunpin, host, size));
}

emm_status managed_alloc(emm_context &context, size_t size, uint32_t flags,
                         emm_deviceptr *ret_ptr) noexcept {
    emm_deviceptr ptr = 0;
    emm_status status = EMM_OK;
    if (size != 0) {
        status = admit(context);
        if (status != EMM_OK) {
            return status;
        }
        status = retry_once(context, size,
                            [&] { return ask_memallocmanaged(context, size, flags, &ptr); });
    }
    if (status >= EMM_OK) {
        *ret_ptr = ptr;
    }
    return status;
}

emm_status managed_free(emm_context &context, emm_deviceptr ptr, size_t size,
                        emm_stream stream) noexcept {
    emm_status status = EMM_OK;
    if (ptr == 0 || is_late(context, &status)) {
        return status;
    }
    return forgive_late(EMM_CALL(context, memfreemanaged, ptr, size, stream));
}

emm_status trim_manager(emm_context &context, size_t keep_bytes, size_t *ret_released) noexcept {
    emm_status status = admit_alive(context);
    size_t released = 0;
    if (status == EMM_OK) {
        const Returns::Scope returning(context.returns);
        if (may_return(context)) {
            flush(context); // what is pending may be what the plugin would cache
        }
        status = EMM_CALL(context, trim, keep_bytes, &released);
    }
    if (status >= EMM_OK && ret_released) {
        *ret_released = released;
    }
    return status;
}

} // namespace

emm_status memalloc_slowly(emm_context &context, size_t size, emm_stream stream,
                           emm_deviceptr *ret_ptr, const void *caller) noexcept {
    if (observe::is_forked_child()) {
        return observe::refuse_forked_child();
    }
    if (size == 0) {
        *ret_ptr = 0;
        return EMM_OK;
    }
    if (!is_watched(context)) {
        return memalloc_admitted(context, size, stream, ret_ptr);
    }
    Watch watch(context, EventType::alloc, 0, size, stream, caller);
    const emm_status status = serves_as_it_is(context)
                                  ? memalloc_served(context, size, stream, ret_ptr)
                                  : memalloc_admitted(context, size, stream, ret_ptr);
    return watch.allocated(status, ret_ptr);
}

emm_status memfree_slowly(emm_context &context, emm_deviceptr ptr, size_t size, emm_stream stream,
                          const void *caller) noexcept {
    if (observe::is_forked_child()) {
        return observe::refuse_forked_child();
    }
    if (ptr == 0) {
        return EMM_OK;
    }
    if (!is_watched(context)) {
        return memfree_admitted(context, ptr, size, stream);
    }
    Watch watch(context, EventType::free, ptr, size, stream, caller);
    return watch.done(serves_as_it_is(context) ? memfree_served(context, ptr, size, stream)
                                               : memfree_admitted(context, ptr, size, stream));
}

emm_status memhostalloc(emm_context &context, size_t size, uint32_t flags, void **ret_host,
                        emm_deviceptr *ret_device, const void *caller) {
    if (size != 0 && pins_at_once(context)) [[likely]] {
        return host_alloc_served(context, size, flags, ret_host, ret_device);
    }
    if (observe::is_forked_child()) {
        return observe::refuse_forked_child();
    }
    if (size == 0 || !is_watched(context)) {
        return host_alloc(context, size, flags, ret_host, ret_device);
    }
    Watch watch(context, EventType::host_alloc, 0, size, EMM_STREAM_UNORDERED, caller);
    return watch.allocated(host_alloc(context, size, flags, ret_host, ret_device), ret_host);
}

emm_status memhostfree(emm_context &context, void *host, size_t size, uint32_t flags,
                       emm_stream stream, const void *caller) {
    if (host && pins_at_once(context)) [[likely]] {
        return host_free_served(context, host, size, flags, stream);
    }
    if (observe::is_forked_child()) {
        return observe::refuse_forked_child();
    }
    if (!host || !is_watched(context)) {
        return host_free(context, host, size, flags, stream);
    }
    Watch watch(context, EventType::host_free, address_of(host), size, stream, caller);
    return watch.done(host_free(context, host, size, flags, stream));
}

emm_status mempin(emm_context &context, void *host, size_t size, uint32_t flags,
                  emm_deviceptr *ret_device, const void *caller) noexcept {
    if (size == 0 || !is_watched(context)) {
        return pin(context, host, size, flags, ret_device);
    }
    Watch watch(context, EventType::pin, 0, size, EMM_STREAM_UNORDERED, caller);
    return watch.allocated(pin(context, host, size, flags, ret_device), &host);
}

emm_status memunpin(emm_context &context, void *host, size_t size, const void *caller) noexcept {
    if (!host || !is_watched(context)) {
        return unpin(context, host, size);
    }
    Watch watch(context, EventType::unpin, address_of(host), size, EMM_STREAM_UNORDERED, caller);
    return watch.done(unpin(context, host, size));
}

emm_status memallocmanaged(emm_context &context, size_t size, uint32_t flags,
                           emm_deviceptr *ret_ptr, const void *caller) noexcept {
    if (size == 0 || !is_watched(context)) {
        return managed_alloc(context, size, flags, ret_ptr);
    }
    Watch watch(context, EventType::managed_alloc, 0, size, EMM_STREAM_UNORDERED, caller);
    return watch.allocated(managed_alloc(context, size, flags, ret_ptr), ret_ptr);
}

emm_status memfreemanaged(emm_context &context, emm_deviceptr ptr, size_t size, emm_stream stream,
                          const void *caller) noexcept {
    if (ptr == 0 || !is_watched(context)) {
        return managed_free(context, ptr, size, stream);
    }
    Watch watch(context, EventType::managed_free, ptr, size, stream, caller);
    return watch.done(managed_free(context, ptr, size, stream));
}

emm_status trim(emm_context &context, size_t keep_bytes, size_t *ret_released,
                const void *caller) noexcept {
    if (!is_watched(context)) {
        return trim_manager(context, keep_bytes, ret_released);
    }
    Watch watch(context, EventType::trim, 0, keep_bytes, EMM_STREAM_UNORDERED, caller);
    return watch.done(trim_manager(context, keep_bytes, ret_released));
}

emm_status memalloc_failed(emm_context &context, emm_status status, size_t size, emm_stream stream,
                           emm_deviceptr *ret_ptr) noexcept {
    status = conclude(context, status, "memalloc");
    if (!is_exhaustion(status)) {
        return status;
    }
    emm_deviceptr ptr = 0;
    status = memalloc_again(context, status, size, stream, &ptr);
    if (status >= EMM_OK) {
        *ret_ptr = ptr;
    }
    return status;
}

emm_status memfree_failed(emm_context &context, emm_status status) noexcept {
    return forgive_late(conclude(context, status, "memfree"));
}

emm_status get_stats(emm_context &context, emm_stats *ret_stats) noexcept {
    emm_status status = admit(context);
    if (status != EMM_OK) {
        return status;
    }
    Filled<emm_stats> filled;
    emm_stats &stats = *filled.out();
    status = EMM_CALL(context, get_stats, &stats);
    status = filled.conclude(context, status, "get_stats");
    if (status < EMM_OK) {
        return status;
    }
    if (context.selection->plugin->defaults(loader::Slot::memhostalloc)) {
        stats.host_live_bytes = context.defaults.pinned_bytes();
        stats.host_reserved_bytes = stats.host_live_bytes;
    }
    emm_copy_sized(ret_stats, &stats);
    return status;
}

emm_status query(emm_context &context, emm_deviceptr ptr, emm_block_info *ret_info) noexcept {
    emm_status status = admit(context);
    if (status != EMM_OK) {
        return status;
    }
    Filled<emm_block_info> filled;
    status = EMM_CALL(context, query, ptr, filled.out());
    status = filled.conclude(context, status, "query");
    if (status >= EMM_OK) {
        emm_copy_sized(ret_info, filled.out());
    }
    return status;
}

emm_status get_memory_info(emm_context &context, size_t *ret_free, size_t *ret_total) noexcept {
    emm_status status = admit(context);
    size_t free = 0, total = 0;
    if (status == EMM_OK) {
        status = EMM_CALL(context, get_memory_info, &free, &total);
    }
    if (status >= EMM_OK) {
        *ret_free = free;
        *ret_total = total;
    }
    return status;
}

} // namespace emm::core
