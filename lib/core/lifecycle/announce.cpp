#include "core/account/watch.h"
#include "core/lifecycle/lifecycle.h"
#include "core/memory/call.h"
#include "core/record/context.h"
#include "observe/error.h"

namespace emm::core {
namespace {

// Counts one capture less; false if there was none.
bool leave_capture(emm_context &context) noexcept {
    uint32_t captures = context.captures.load();
    while (captures != 0) {
        if (context.captures.compare_exchange_weak(captures, captures - 1)) {
            return true;
        }
    }
    return false;
}

// Noted for a plugin without a reset slot, whose next manager is told the same.
emm_status announce(emm_context &context, const Announced::Notice &notice) noexcept {
    if (begins_anew(context)) {
        EMM_TRY(observe::with_memory("no memory to note a stream", [&] {
            context.announced.add(notice);
            return EMM_OK;
        }));
    }
    const emm_status status = EMM_CALL(context, stream_notice, notice.stream, notice.notice);
    if (status < EMM_OK) {
        context.announced.remove(notice);
    }
    return status;
}

emm_status begin_unwatched(emm_context &context) noexcept {
    EMM_TRY(admit(context));
    context.pending.enter();
    emm_status status = EMM_CALL(context, defer_cleanup, 1u);
    if (status < EMM_OK) {
        bool due = false;
        context.pending.leave(&due);
    }
    return status;
}

emm_status end_unwatched(emm_context &context) noexcept {
    EMM_TRY(admit(context));
    bool due = false;
    if (!context.pending.leave(&due)) {
        return observe::fail(EMM_E_INVALID_VALUE, 0,
                             "emm_defer_cleanup_end: no section has begun in this context");
    }
    const emm_status status = EMM_CALL_END(context, defer_cleanup, 0u);
    if (due && context.captures.load(std::memory_order_relaxed) == 0) {
        flush(context);
    }
    return status;
}

} // namespace

emm_status register_stream(emm_context &context, emm_stream stream) noexcept {
    EMM_TRY(admit(context));
    return announce(context, {EMM_STREAM_REGISTERED, stream});
}

emm_status retire_stream(emm_context &context, emm_stream stream) noexcept {
    EMM_TRY(admit(context));
    context.announced.remove({EMM_STREAM_REGISTERED, stream}); // whatever the plugin says to that
    return EMM_CALL_END(context, stream_notice, stream, uint32_t(EMM_STREAM_RETIRING));
}

emm_status begin_capture(emm_context &context, emm_stream stream) noexcept {
    EMM_TRY(admit(context));
    EMM_TRY(expect_own(context, stream));
    ++context.captures;
    const emm_status status = announce(context, {EMM_STREAM_CAPTURE_BEGINS, stream});
    if (status < EMM_OK) {
        leave_capture(context);
    }
    return status;
}

emm_status end_capture(emm_context &context, emm_stream stream) noexcept {
    EMM_TRY(admit(context));
    if (!leave_capture(context)) {
        return observe::fail(EMM_E_INVALID_VALUE, 0,
                             "emm_capture_end: no capture has been announced in this context");
    }
    context.announced.remove({EMM_STREAM_CAPTURE_BEGINS, stream});
    return EMM_CALL_END(context, stream_notice, stream, uint32_t(EMM_STREAM_CAPTURE_ENDS));
}

emm_status begin_section(emm_context &context, const void *caller) noexcept {
    return watched(context, observe::EventType::defer_begin, caller,
                   [&] { return begin_unwatched(context); });
}

emm_status end_section(emm_context &context, const void *caller) noexcept {
    return watched(context, observe::EventType::defer_end, caller,
                   [&] { return end_unwatched(context); });
}

namespace {

emm_status check_flags(uint32_t flags) {
    if (flags == EMM_ACCESS_NONE || flags == EMM_ACCESS_READ || flags == EMM_ACCESS_READ_WRITE) {
        return EMM_OK;
    }
    return observe::refuse(
        "flags: expected EMM_ACCESS_NONE, _READ or _READ_WRITE (0, 1 or 3), found {}", flags);
}

emm_status check_ordinal(const emm_context &context, int32_t peer_device) {
    int count = 0;
    EMM_TRY(EMM_DRIVER_CALL(context.driver, cuDeviceGetCount, &count));
    if (peer_device >= 0 && peer_device < count && peer_device != context.device) {
        return EMM_OK;
    }
    return observe::refuse("peer_device: expected another device than the context's own, {}, of "
                           "the {} here, found {}",
                           context.device, count, peer_device);
}

emm_status check_reach(const emm_context &context, int32_t peer_device) {
    int possible = 0;
    EMM_TRY(EMM_DRIVER_CALL(context.driver, cuDeviceCanAccessPeer, &possible, peer_device,
                            context.device));
    if (possible) {
        return EMM_OK;
    }
    return observe::fail(EMM_E_NOT_SUPPORTED, 0, "device {} cannot reach the memory of device {}",
                         peer_device, context.device);
}

} // namespace

emm_status set_peer_access(emm_context &context, int32_t peer_device, uint32_t flags) {
    EMM_TRY(admit(context));
    EMM_TRY(check_flags(flags));
    EMM_TRY(check_ordinal(context, peer_device));
    if (flags != EMM_ACCESS_NONE) {
        EMM_TRY(check_reach(context, peer_device));
    }
    // Noted before anything has it, so that what is opened meanwhile has it too.
    const uint32_t before = context.announced.access(peer_device);
    context.announced.set_access(peer_device, flags);
    const emm_status status = EMM_CALL(context, set_access, peer_device, flags);
    if (status < EMM_OK) {
        context.announced.set_access(peer_device, before);
    } else {
        sharing->set_access(context, peer_device, flags);
    }
    return status;
}

} // namespace emm::core
