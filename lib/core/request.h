#pragma once

#include "core/call.h"
#include "core/recovery.h"
#include "observe/events/record.h"

// Requests for memory, a struct for each kind: what the caller asked for, what the plugin gave, and
// `give`, which copies that to the caller's outputs once it is a success. core/memory.h has what is
// the same for all of them.
//
// `call` is the plugin's function by the pointer in the context record; `ask` is the checked call
// of core/call.h. Only kinds with a fast path have a `call`.
namespace emm::core {

// What a device that cannot map host memory fails with says nothing of that: the driver's answer is
// an invalid value. Other failures stay as they are.
emm_status explain_mapping(const emm_context &context, uint32_t flags, emm_status status) noexcept;

struct DeviceRequest {
    static constexpr observe::EventType event = observe::EventType::alloc;
    static constexpr const char *slot = "memalloc";
    emm_context &context;
    const size_t size;
    const emm_stream stream;
    emm_deviceptr *const ret_ptr;
    emm_deviceptr ptr = 0;

    emm_status call() { return context.memalloc(context.manager, size, stream, &ptr); }
    emm_status ask() noexcept {
        ptr = 0;
        return EMM_CALL(context, memalloc, size, stream, &ptr);
    }
    bool is_filled() const { return ptr != 0; }
    void give() const { *ret_ptr = ptr; }
    emm_stream ordered_by() const { return stream; }
    emm_deviceptr address() const { return ptr; }
    // For more than the device has no cache is given up: it could not make room.
    bool can_be_met() const { return size <= context.total_memory; }
    emm_status explain(emm_status status) const { return status; }
};

struct PinnedRequest {
    static constexpr observe::EventType event = observe::EventType::host_alloc;
    static constexpr const char *slot = "memhostalloc";
    emm_context &context;
    const size_t size;
    const uint32_t flags;
    void **const ret_host;
    emm_deviceptr *const ret_device; // may be NULL
    void *host = nullptr;
    emm_deviceptr device = 0;

    emm_status call() { return context.memhostalloc(context.manager, size, flags, &host, &device); }
    emm_status ask() noexcept {
        host = nullptr;
        device = 0;
        return EMM_CALL(context, memhostalloc, size, flags, &host, &device);
    }
    bool is_filled() const { return host != nullptr; }
    void give() const {
        *ret_host = host;
        if (ret_device) {
            *ret_device = device;
        }
    }
    emm_stream ordered_by() const { return EMM_STREAM_UNORDERED; }
    emm_deviceptr address() const { return reinterpret_cast<uintptr_t>(host); }
    bool can_be_met() const { return true; }
    emm_status explain(emm_status status) const { return explain_mapping(context, flags, status); }
};

// A range of the caller's, to be registered.
struct RangeRequest {
    static constexpr observe::EventType event = observe::EventType::pin;
    static constexpr const char *slot = "mempin";
    emm_context &context;
    void *const host;
    const size_t size;
    const uint32_t flags;
    emm_deviceptr *const ret_device; // may be NULL
    emm_deviceptr device = 0;

    emm_status ask() noexcept {
        device = 0;
        return EMM_CALL(context, mempin, host, size, flags, &device);
    }
    bool is_filled() const { return true; } // without EMM_HOST_MAPPED there is no address
    void give() const {
        if (ret_device) {
            *ret_device = device;
        }
    }
    emm_stream ordered_by() const { return EMM_STREAM_UNORDERED; }
    emm_deviceptr address() const { return reinterpret_cast<uintptr_t>(host); }
    bool can_be_met() const { return true; }
    emm_status explain(emm_status status) const { return explain_mapping(context, flags, status); }
};

struct ManagedRequest {
    static constexpr observe::EventType event = observe::EventType::managed_alloc;
    static constexpr const char *slot = "memallocmanaged";
    emm_context &context;
    const size_t size;
    const uint32_t flags;
    emm_deviceptr *const ret_ptr;
    emm_deviceptr ptr = 0;

    emm_status ask() noexcept {
        ptr = 0;
        return EMM_CALL(context, memallocmanaged, size, flags, &ptr);
    }
    bool is_filled() const { return ptr != 0; }
    void give() const { *ret_ptr = ptr; }
    emm_stream ordered_by() const { return EMM_STREAM_UNORDERED; }
    emm_deviceptr address() const { return ptr; }
    bool can_be_met() const { return true; } // it may be larger than the device
    emm_status explain(emm_status status) const { return status; }
};

} // namespace emm::core
