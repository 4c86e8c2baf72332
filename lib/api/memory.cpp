#include "core/memory/memory.h"

#include "api/check.h"
#include "core/lifecycle/lifecycle.h"

using namespace emm;

emm_status emm_memalloc(emm_context *context, size_t size, emm_stream stream,
                        emm_deviceptr *ret_ptr) {
    EMM_REFUSE_CHILD_UNLESS(context && ret_ptr);
    EMM_REQUIRE(context, ret_ptr);
    return core::memalloc(*context, size, stream, ret_ptr);
}

emm_status emm_memfree(emm_context *context, emm_deviceptr ptr, size_t size, emm_stream stream) {
    EMM_REFUSE_CHILD_UNLESS(context);
    EMM_REQUIRE(context);
    return core::memfree(*context, ptr, size, stream);
}

emm_status emm_memhostalloc(emm_context *context, size_t size, uint32_t flags, void **ret_host,
                            emm_deviceptr *ret_device) {
    EMM_REFUSE_CHILD_UNLESS(context && ret_host && (flags & ~api::host_alloc_flags) == 0);
    EMM_REQUIRE(context, ret_host);
    EMM_REQUIRE_HOST_ALLOC_FLAGS(flags);
    return core::memhostalloc(*context, size, flags, ret_host, ret_device);
}

emm_status emm_memhostfree(emm_context *context, void *host, size_t size, uint32_t flags,
                           emm_stream stream) {
    EMM_REFUSE_CHILD_UNLESS(context && (flags & ~api::host_alloc_flags) == 0);
    EMM_REQUIRE(context);
    EMM_REQUIRE_HOST_ALLOC_FLAGS(flags);
    return core::memhostfree(*context, host, size, flags, stream);
}

emm_status emm_mempin(emm_context *context, void *host, size_t size, uint32_t flags,
                      emm_deviceptr *ret_device) {
    EMM_ENTER(context);
    EMM_REQUIRE_RANGE(host, size);
    EMM_REQUIRE_PIN_FLAGS(flags);
    return core::mempin(*context, host, size, flags, ret_device);
}

emm_status emm_memunpin(emm_context *context, void *host, size_t size) {
    EMM_ENTER(context);
    return core::memunpin(*context, host, size);
}

emm_status emm_memallocmanaged(emm_context *context, size_t size, uint32_t flags,
                               emm_deviceptr *ret_ptr) {
    EMM_ENTER(context, ret_ptr);
    EMM_REQUIRE_ATTACH_FLAG(flags);
    return core::memallocmanaged(*context, size, flags, ret_ptr);
}

emm_status emm_memfreemanaged(emm_context *context, emm_deviceptr ptr, size_t size,
                              emm_stream stream) {
    EMM_ENTER(context);
    return core::memfreemanaged(*context, ptr, size, stream);
}

emm_status emm_get_memory_info(emm_context *context, size_t *ret_free, size_t *ret_total) {
    EMM_ENTER(context, ret_free, ret_total);
    return core::get_memory_info(*context, ret_free, ret_total);
}

emm_status emm_get_stats(emm_context *context, emm_stats *ret_stats) {
    EMM_ENTER(context);
    EMM_REQUIRE_SIZED(ret_stats);
    return core::get_stats(*context, ret_stats);
}

emm_status emm_context_reset_peaks(emm_context *context) {
    EMM_ENTER(context);
    return core::reset_peaks(*context);
}

emm_status emm_trim(emm_context *context, size_t keep_bytes, size_t *ret_released) {
    EMM_ENTER(context);
    return core::trim(*context, keep_bytes, ret_released);
}

emm_status emm_query(emm_context *context, emm_deviceptr ptr, emm_block_info *ret_info) {
    EMM_ENTER(context);
    EMM_REQUIRE_SIZED(ret_info);
    return core::query(*context, ptr, ret_info);
}

emm_status emm_record_use(emm_context *context, emm_deviceptr ptr, size_t size, emm_stream stream) {
    EMM_ENTER(context);
    EMM_TRY(core::admit(*context));
    EMM_TRY(core::expect_own(*context, stream));
    return EMM_CALL(*context, record_use, ptr, size, stream);
}

emm_status emm_set_peer_access(emm_context *context, int32_t peer_device, uint32_t flags) {
    EMM_ENTER(context);
    return api::guarded([&] { return core::set_peer_access(*context, peer_device, flags); });
}
