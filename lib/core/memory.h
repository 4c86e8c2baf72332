#pragma once

#include "core/call.h"

#include <cxxabi.h>

// The raw memory calls of emm.h, with arguments that have been checked. What calls a plugin's slot
// without holding cancellation back is not noexcept: a thread that is cancelled there is unwound
// (abi::__forced_unwind), and has nothing to put in order on the way.
namespace emm::core {

// Who called, for the event log: the caller of the function that calls one of these. A default
// argument is evaluated where the call is written.
#define EMM_CALLER const void *caller = __builtin_return_address(0)

// Whatever is unusual: size or address 0, a context that is watched, does not serve or must be made
// current, a plugin that fails. Kept out of the way of what is usual.
[[gnu::noinline]] emm_status memalloc_slowly(emm_context &context, size_t size, emm_stream stream,
                                             emm_deviceptr *ret_ptr, const void *caller) noexcept;
[[gnu::noinline, gnu::cold]] emm_status memalloc_failed(emm_context &context, emm_status status,
                                                        size_t size, emm_stream stream,
                                                        emm_deviceptr *ret_ptr) noexcept;
[[gnu::noinline]] emm_status memfree_slowly(emm_context &context, emm_deviceptr ptr, size_t size,
                                            emm_stream stream, const void *caller) noexcept;

[[gnu::noinline, gnu::cold]] emm_status memfree_failed(emm_context &context,
                                                       emm_status status) noexcept;

// One indirect call to the plugin of a context that serves.
[[gnu::always_inline]] inline emm_status
memalloc_served(emm_context &context, size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
    // Only the rare paths read these again. Volatile keeps them on the stack: registers that live
    // across the call would have to be saved and restored each time.
    emm_context *volatile const for_context = &context;
    volatile const size_t for_size = size;
    volatile const emm_stream for_stream = stream;
    emm_deviceptr *volatile const for_ptr = ret_ptr;
    emm_deviceptr ptr = 0; // a plugin that fails may have written something
    emm_status status;
    try {
        status = context.memalloc(context.manager, size, stream, &ptr);
    } catch (const abi::__forced_unwind &) {
        throw; // the thread is cancelled
    } catch (...) {
        return conclude_exception(*for_context, "memalloc");
    }
    if (status < EMM_OK) [[unlikely]] {
        return memalloc_failed(*for_context, status, for_size, for_stream, for_ptr);
    }
    if (ptr == 0) [[unlikely]] {
        return conclude_nothing(*for_context, "memalloc");
    }
    *for_ptr = ptr;
    return status;
}

[[gnu::always_inline]] inline emm_status memfree_served(emm_context &context, emm_deviceptr ptr,
                                                        size_t size, emm_stream stream) {
    emm_status status;
    try {
        status = context.memfree(context.manager, ptr, size, stream);
    } catch (const abi::__forced_unwind &) {
        throw;
    } catch (...) {
        return conclude_exception(context, "memfree");
    }
    return status >= EMM_OK ? status : memfree_failed(context, status);
}

// The fast path: one load says that nothing is unusual. No lock, no map, no clock, no log, no
// driver call. Inlined, so that the return address is asked for off the path, and is that of the
// function around it.
[[gnu::always_inline]] inline emm_status memalloc(emm_context &context, size_t size,
                                                  emm_stream stream, emm_deviceptr *ret_ptr,
                                                  const void *caller = nullptr) {
    if (size == 0 || context.state.load(std::memory_order_acquire) != 0) [[unlikely]] {
        return memalloc_slowly(context, size, stream, ret_ptr,
                               caller ? caller : __builtin_return_address(0));
    }
    return memalloc_served(context, size, stream, ret_ptr);
}

[[gnu::always_inline]] inline emm_status memfree(emm_context &context, emm_deviceptr ptr,
                                                 size_t size, emm_stream stream,
                                                 const void *caller = nullptr) {
    if (ptr == 0 || context.state.load(std::memory_order_acquire) != 0) [[unlikely]] {
        return memfree_slowly(context, ptr, size, stream,
                              caller ? caller : __builtin_return_address(0));
    }
    return memfree_served(context, ptr, size, stream);
}

emm_status memhostalloc(emm_context &context, size_t size, uint32_t flags, void **ret_host,
                        emm_deviceptr *ret_device, EMM_CALLER);
emm_status memhostfree(emm_context &context, void *host, size_t size, uint32_t flags,
                       emm_stream stream, EMM_CALLER);
emm_status mempin(emm_context &context, void *host, size_t size, uint32_t flags,
                  emm_deviceptr *ret_device, EMM_CALLER) noexcept;
emm_status memunpin(emm_context &context, void *host, size_t size, EMM_CALLER) noexcept;
emm_status memallocmanaged(emm_context &context, size_t size, uint32_t flags,
                           emm_deviceptr *ret_ptr, EMM_CALLER) noexcept;
emm_status memfreemanaged(emm_context &context, emm_deviceptr ptr, size_t size, emm_stream stream,
                          EMM_CALLER) noexcept;
emm_status trim(emm_context &context, size_t keep_bytes, size_t *ret_released, EMM_CALLER) noexcept;
emm_status get_stats(emm_context &context, emm_stats *ret_stats) noexcept;
emm_status query(emm_context &context, emm_deviceptr ptr, emm_block_info *ret_info) noexcept;
emm_status get_memory_info(emm_context &context, size_t *ret_free, size_t *ret_total) noexcept;

} // namespace emm::core
