#include "core/memory.h"

#include "core/call.h"
#include "core/counters.h"
#include "core/recovery.h"

namespace emm::core {
namespace {

// A free that finds its context dead, its device lost or the driver gone has nothing left to do.
emm_status forgive_late(emm_status status) noexcept {
    if (status != EMM_E_RETIRED && status != EMM_E_SHUT_DOWN && status != EMM_E_DEVICE_LOST) {
        return status;
    }
    ++counters().late_frees;
    return EMM_OK;
}

} // namespace

emm_status memalloc_slowly(emm_context &context, size_t size, emm_stream stream,
                           emm_deviceptr *ret_ptr) noexcept {
    if (size == 0) {
        *ret_ptr = 0;
        return EMM_OK;
    }
    emm_status status = admit(context);
    if (status != EMM_OK) {
        return status;
    }
    emm_deviceptr ptr = 0;
    status =
        retry_once(context, size, [&] { return EMM_CALL(context, memalloc, size, stream, &ptr); });
    if (status >= EMM_OK) {
        *ret_ptr = ptr;
    }
    return status;
}

emm_status memalloc_failed(emm_context &context, emm_status status, size_t size, emm_stream stream,
                           emm_deviceptr *ret_ptr) noexcept {
    if (!is_exhaustion(status)) {
        return conclude(context, status, "memalloc");
    }
    emm_deviceptr ptr = 0;
    status = recover_and_retry(context, size,
                               [&] { return EMM_CALL(context, memalloc, size, stream, &ptr); });
    if (status >= EMM_OK) {
        *ret_ptr = ptr;
    }
    return status;
}

emm_status memfree_failed(emm_context &context, emm_status status) noexcept {
    return forgive_late(conclude(context, status, "memfree"));
}

emm_status memfree_slowly(emm_context &context, emm_deviceptr ptr, size_t size,
                          emm_stream stream) noexcept {
    emm_status status = EMM_OK;
    if (ptr == 0 || is_late(context, &status)) {
        return status;
    }
    return forgive_late(EMM_CALL(context, memfree, ptr, size, stream));
}

emm_status memhostalloc(emm_context &context, size_t size, uint32_t flags, void **ret_host,
                        emm_deviceptr *ret_device) noexcept {
    void *host = nullptr;
    emm_deviceptr device = 0;
    emm_status status = EMM_OK;
    if (size != 0) {
        status = admit(context);
        if (status != EMM_OK) {
            return status;
        }
        status = retry_once(context, size, [&] {
            return EMM_CALL(context, memhostalloc, size, flags, &host, &device);
        });
    }
    if (status >= EMM_OK) {
        *ret_host = host;
        if (ret_device) {
            *ret_device = device;
        }
    }
    return status;
}

emm_status memhostfree(emm_context &context, void *host, size_t size, uint32_t flags,
                       emm_stream stream) noexcept {
    emm_status status = EMM_OK;
    if (!host || is_late(context, &status)) {
        return status;
    }
    return forgive_late(EMM_CALL(context, memhostfree, host, size, flags, stream));
}

emm_status mempin(emm_context &context, void *host, size_t size, uint32_t flags,
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
    return status;
}

emm_status memunpin(emm_context &context, void *host, size_t size) noexcept {
    emm_status status = EMM_OK;
    if (!host || size == 0 || is_late(context, &status)) {
        return status;
    }
    return forgive_late(EMM_CALL(context, memunpin, host, size));
}

emm_status memallocmanaged(emm_context &context, size_t size, uint32_t flags,
                           emm_deviceptr *ret_ptr) noexcept {
    emm_deviceptr ptr = 0;
    emm_status status = EMM_OK;
    if (size != 0) {
        status = admit(context);
        if (status != EMM_OK) {
            return status;
        }
        status = retry_once(context, size,
                            [&] { return EMM_CALL(context, memallocmanaged, size, flags, &ptr); });
    }
    if (status >= EMM_OK) {
        *ret_ptr = ptr;
    }
    return status;
}

emm_status memfreemanaged(emm_context &context, emm_deviceptr ptr, size_t size,
                          emm_stream stream) noexcept {
    emm_status status = EMM_OK;
    if (ptr == 0 || is_late(context, &status)) {
        return status;
    }
    return forgive_late(EMM_CALL(context, memfreemanaged, ptr, size, stream));
}

emm_status trim(emm_context &context, size_t keep_bytes, size_t *ret_released) noexcept {
    emm_status status = admit(context);
    size_t released = 0;
    if (status == EMM_OK) {
        status = EMM_CALL(context, trim, keep_bytes, &released);
    }
    if (status >= EMM_OK && ret_released) {
        *ret_released = released;
    }
    return status;
}

emm_status get_stats(emm_context &context, emm_stats *ret_stats) noexcept {
    emm_status status = admit(context);
    if (status != EMM_OK) {
        return status;
    }
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    status = EMM_CALL(context, get_stats, &stats);
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

} // namespace emm::core
