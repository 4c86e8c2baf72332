#include "core/handles/handle.h"

#include "api/check.h"

using namespace emm;

emm_status emm_memory_alloc(emm_context *context, size_t size, emm_stream stream,
                            emm_memory **ret_memory) {
    EMM_ENTER(context, ret_memory);
    return core::make_device(*context, size, stream, ret_memory);
}

emm_status emm_memory_hostalloc(emm_context *context, size_t size, uint32_t flags,
                                emm_memory **ret_memory) {
    EMM_ENTER(context, ret_memory);
    EMM_REQUIRE_HOST_ALLOC_FLAGS(flags);
    return core::make_host(*context, size, flags, ret_memory);
}

emm_status emm_memory_pin(emm_context *context, void *host, size_t size, uint32_t flags,
                          void *owner, emm_finalizer finalizer, emm_memory **ret_memory) {
    EMM_ENTER(context);
    EMM_REQUIRE_RANGE(host, size);
    EMM_REQUIRE(ret_memory);
    EMM_REQUIRE_PIN_FLAGS(flags);
    return core::make_pinned(*context, host, size, flags, owner, finalizer, ret_memory);
}

emm_status emm_memory_managed(emm_context *context, size_t size, uint32_t flags,
                              emm_memory **ret_memory) {
    EMM_ENTER(context, ret_memory);
    EMM_REQUIRE_ATTACH_FLAG(flags);
    return core::make_managed(*context, size, flags, ret_memory);
}

emm_status emm_memory_wrap(emm_context *context, emm_deviceptr ptr, void *host, size_t size,
                           void *owner, emm_finalizer finalizer, emm_memory **ret_memory) {
    EMM_ENTER(context, ret_memory);
    if (size != 0 && ptr == 0 && !host) {
        return observe::fail(EMM_E_INVALID_VALUE, 0,
                             "emm_memory_wrap: ptr and host are both 0; give one or both");
    }
    return core::make_external(*context, ptr, host, size, owner, finalizer, ret_memory);
}

emm_status emm_memory_view(emm_memory *memory, size_t start, size_t stop, emm_memory **ret_view) {
    EMM_ENTER(memory, ret_view);
    return core::make_view(*memory, start, stop, ret_view);
}

emm_status emm_memory_retain(emm_memory *memory) {
    EMM_ENTER(memory);
    return core::retain(*memory);
}

emm_status emm_memory_release(emm_memory *memory) {
    EMM_REFUSE_CHILD();
    return memory ? core::release(*memory) : EMM_OK;
}

emm_status emm_memory_free(emm_memory *memory) {
    EMM_ENTER(memory);
    return core::free_now(*memory);
}

emm_status emm_memory_set_stream(emm_memory *memory, emm_stream stream) {
    EMM_ENTER(memory);
    return core::set_stream(*memory, stream);
}

emm_status emm_memory_get_info(emm_memory *memory, emm_memory_info *ret_info) {
    EMM_ENTER(memory);
    EMM_REQUIRE_SIZED(ret_info);
    return core::describe(*memory, ret_info);
}
