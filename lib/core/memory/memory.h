#pragma once

#include "core/memory/call.h"
#include "core/memory/recovery.h"
#include "observe/events/record.h"

#include <cxxabi.h>

// The raw memory calls of emm.h, with arguments that have been checked. A function that calls a
// plugin's slot without holding cancellation back is not noexcept: a cancelled thread is unwound
// there (abi::__forced_unwind), and has nothing to clean up on the way.
namespace emm::core {

// The caller that the event log names: the program's function that called into libemm. The compiler
// evaluates this default argument where the call is written.
#define EMM_CALLER const void *caller = __builtin_return_address(0)

// A device that cannot map host memory fails with "invalid value", so this states the real reason.
// Other failures stay as they are.
emm_status explain_mapping(const emm_context &context, uint32_t flags, emm_status status) noexcept;

// A request for memory of one kind: the caller's arguments, the plugin's outputs, and `give`, which
// copies the outputs to the caller after a success. Fields that a kind does not have are not
// written: the fast path stores no more than it needs.
//
// `call` is the plugin's function by the pointer in the context record; `ask` is the checked call
// of core/memory/call.h. Only device and pinned memory have a fast path, and a `call`.
template <observe::EventType kind> struct Request {
    static constexpr observe::EventType event = kind;
    static constexpr bool is_device = kind == observe::EventType::alloc,
                          is_pinned = kind == observe::EventType::host_alloc,
                          is_range = kind == observe::EventType::pin; // of the caller's memory
    static constexpr const char *slot = is_device   ? "memalloc"
                                        : is_pinned ? "memhostalloc"
                                        : is_range  ? "mempin"
                                                    : "memallocmanaged";

    Request(emm_context &of, size_t bytes, emm_stream ordered,
            emm_deviceptr *ret_ptr) requires(is_device)
        : context(of), size(bytes), stream(ordered), ret_device(ret_ptr) {}
    Request(emm_context &of, void *range, size_t bytes, uint32_t chosen, void **ret_range,
            emm_deviceptr *ret_ptr) requires(!is_device)
        : context(of), size(bytes), flags(chosen), ret_host(ret_range), ret_device(ret_ptr),
          host(range) {}

    emm_context &context;
    const size_t size;
    emm_stream stream;               // of device memory
    uint32_t flags;                  // of all other kinds
    void **ret_host;                 // of pinned memory
    emm_deviceptr *const ret_device; // may be NULL for host memory
    void *host;
    emm_deviceptr device = 0;

    emm_status call() {
        if constexpr (is_device) {
            return context.memalloc(context.manager, size, stream, &device);
        } else {
            return context.memhostalloc(context.host_manager, size, flags, &host, &device);
        }
    }
    emm_status ask() noexcept {
        device = 0;
        if constexpr (is_device) {
            return EMM_CALL(context, memalloc, size, stream, &device);
        } else if constexpr (is_pinned) {
            host = nullptr;
            return EMM_CALL(context, memhostalloc, size, flags, &host, &device);
        } else if constexpr (is_range) {
            return EMM_CALL(context, mempin, host, size, flags, &device);
        } else {
            return EMM_CALL(context, memallocmanaged, size, flags, &device);
        }
    }
    // Without EMM_HOST_MAPPED a range has no device address.
    bool is_filled() const { return is_range || (is_pinned ? host != nullptr : device != 0); }
    void give() const {
        if constexpr (is_pinned) {
            *ret_host = host;
        }
        if ((!is_pinned && !is_range) || ret_device) {
            *ret_device = device;
        }
    }
    emm_stream ordered_by() const { return is_device ? stream : EMM_STREAM_UNORDERED; }
    emm_deviceptr address() const {
        return is_pinned || is_range ? reinterpret_cast<uintptr_t>(host) : device;
    }
    // If the request exceeds the device, no cache is given up, because that could not make room.
    // Managed memory may be larger.
    bool can_be_met() const { return !is_device || size <= obtainable_memory(context); }
    emm_status explain(emm_status status) const {
        return is_pinned || is_range ? explain_mapping(context, flags, status) : status;
    }
};

using DeviceRequest = Request<observe::EventType::alloc>;

// Allocates off the fast path: size 0, or a context that is watched, does not serve or must be made
// current. If records of live allocations (EMM_TRACK) are the only reason, the plugin is called as
// on the fast path, and the thread may be cancelled there. retry_failed takes over when the
// plugin's function fails, or succeeds without memory.
template <class Kind>
[[gnu::noinline]] emm_status allocate_otherwise(Kind &request, const void *caller);
template <class Kind>
[[gnu::noinline, gnu::cold]] emm_status retry_failed(Kind &request, emm_status status,
                                                     const void *caller) noexcept;

// One indirect call to the plugin of a context that serves. The plugin's function sees the address
// of a part of `request`. So the compiler keeps all of `request` on the stack, and saves no
// register across the call for the rare paths.
template <class Kind>
[[gnu::always_inline]] inline emm_status allocate(Kind &request, const void *caller = nullptr) {
    emm_status status;
    try {
        status = request.call();
    } catch (const abi::__forced_unwind &) {
        throw; // the thread is cancelled
    } catch (...) {
        return fail_of_exception(request.context, Kind::slot);
    }
    if (status < EMM_OK || !request.is_filled()) [[unlikely]] {
        return retry_failed(request, status, caller);
    }
    request.give();
    return status;
}

// The same for a free. Its arguments are in registers that are free by then.
[[gnu::noinline, gnu::cold]] emm_status
describe_failed_free(emm_context &context, emm_status status, const char *slot) noexcept;
template <class Function, class... Arguments>
[[gnu::always_inline]] inline emm_status free_with(emm_context &context, const char *slot,
                                                   Function function, emm_manager *self,
                                                   Arguments... arguments) {
    emm_status status;
    try {
        status = function(self, arguments...);
    } catch (const abi::__forced_unwind &) {
        throw;
    } catch (...) {
        return fail_of_exception(context, slot);
    }
    return status >= EMM_OK ? status : describe_failed_free(context, status, slot);
}

[[gnu::noinline]] emm_status memfree_otherwise(emm_context &context, emm_deviceptr ptr, size_t size,
                                               emm_stream stream, const void *caller);

// The fast path. One load shows that nothing is unusual; there is no lock, map, clock, log or
// driver call. The function is inlined for two reasons: the return address is read only off the
// fast path, and belongs to the surrounding function.
[[gnu::always_inline]] inline emm_status memalloc(emm_context &context, size_t size,
                                                  emm_stream stream, emm_deviceptr *ret_ptr,
                                                  const void *caller = nullptr) {
    if (size == 0 || context.state.load(std::memory_order_acquire) != 0) [[unlikely]] {
        DeviceRequest request{context, size, stream, ret_ptr};
        return allocate_otherwise(request, caller ? caller : __builtin_return_address(0));
    }
    DeviceRequest request{context, size, stream, ret_ptr}; // filled after the load, from registers
    return allocate(request);
}

[[gnu::always_inline]] inline emm_status memfree(emm_context &context, emm_deviceptr ptr,
                                                 size_t size, emm_stream stream,
                                                 const void *caller = nullptr) {
    if (ptr == 0 || context.state.load(std::memory_order_acquire) != 0) [[unlikely]] {
        return memfree_otherwise(context, ptr, size, stream,
                                 caller ? caller : __builtin_return_address(0));
    }
    return free_with(context, "memfree", context.memfree, context.manager, ptr, size, stream);
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
// False: get_stats gives zeros, but for what emm itself counts.
bool keeps_figures(const emm_context &context) noexcept;
emm_status reset_peaks(emm_context &context) noexcept;
emm_status query(emm_context &context, emm_deviceptr ptr, emm_block_info *ret_info) noexcept;
emm_status get_memory_info(emm_context &context, size_t *ret_free, size_t *ret_total) noexcept;

} // namespace emm::core
