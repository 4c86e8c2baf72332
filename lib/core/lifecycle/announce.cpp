#include "core/lifecycle/lifecycle.h"
#include "core/memory/call.h"
#include "core/record/context.h"
#include "core/tracking/watch.h"
#include "observe/error.h"

namespace emm::core {
namespace {

constexpr const char *announced_within = "a plugin must not announce a stream from inside a stream "
                                         "or manager call of the same CUDA context";

// Tells the serving pools of a group that a stream or a capture has ended. `end`: only those that
// for_each_pool visits before this pool. Returns the first failure.
emm_status tell_end(emm_context &group, emm_stream stream, uint32_t notice,
                    const emm_context *end = nullptr) noexcept {
    emm_status status = EMM_OK;
    for_each_pool(group, [&](emm_context &pool) {
        const bool is_before_end =
            !end || pool.number > end->number; // `end` may have left the list
        if (is_before_end && is_served(pool)) {
            const emm_status told = EMM_CALL_END(pool, stream_notice, stream, notice);
            status = status < EMM_OK ? status : told;
        }
    });
    return status;
}

// Tells all serving pools of the CUDA context, and notes the announcement for later managers. If a
// pool refuses, the pools before it are told `undo`.
emm_status announce(emm_context &context, const Announced::Notice &notice, uint32_t undo) noexcept {
    emm_context &group = context.group;
    const OwnerGuard guard(group.announcing);
    EMM_TRY(guard.expect_owned(announced_within));
    EMM_TRY(observe::with_memory("no host memory to record a stream", [&] {
        group.announced.add(notice);
        return EMM_OK;
    }));
    emm_status status = EMM_OK;
    const emm_context *refusing = nullptr;
    for_each_pool(group, [&](emm_context &pool) {
        if (!refusing && is_served(pool)) {
            status = EMM_CALL(pool, stream_notice, notice.stream, notice.notice);
            refusing = status < EMM_OK ? &pool : nullptr;
        }
    });
    if (refusing) {
        const observe::Preserved said;
        group.announced.remove(notice);
        tell_end(group, notice.stream, undo, refusing);
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
    if (due && !is_capturing(context)) {
        flush(context);
    }
    return status;
}

} // namespace

emm_status register_stream(emm_context &context, emm_stream stream) noexcept {
    EMM_TRY(admit(context));
    return announce(context, {EMM_STREAM_REGISTERED, stream}, EMM_STREAM_RETIRING);
}

emm_status retire_stream(emm_context &context, emm_stream stream) noexcept {
    EMM_TRY(admit(context));
    const OwnerGuard guard(context.group.announcing);
    EMM_TRY(guard.expect_owned(announced_within));
    // The stream ends even if the plugin refuses.
    context.group.announced.remove({EMM_STREAM_REGISTERED, stream});
    return tell_end(context.group, stream, EMM_STREAM_RETIRING);
}

emm_status begin_capture(emm_context &context, emm_stream stream) noexcept {
    EMM_TRY(admit(context));
    EMM_TRY(expect_own(context, stream));
    ++context.group.captures;
    const emm_status status =
        announce(context, {EMM_STREAM_CAPTURE_BEGINS, stream}, EMM_STREAM_CAPTURE_ENDS);
    if (status < EMM_OK) {
        --context.group.captures;
    }
    return status;
}

emm_status end_capture(emm_context &context, emm_stream stream) noexcept {
    EMM_TRY(admit(context));
    const OwnerGuard guard(context.group.announcing);
    EMM_TRY(guard.expect_owned(announced_within));
    if (!context.group.announced.remove({EMM_STREAM_CAPTURE_BEGINS, stream})) {
        return observe::fail(EMM_E_INVALID_VALUE, 0,
                             "emm_capture_end: no capture of this stream has been announced in "
                             "this context");
    }
    --context.group.captures;
    return tell_end(context.group, stream, EMM_STREAM_CAPTURE_ENDS);
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
    return observe::refuse("peer_device: expected 0 to {}, and not the context's own {}, found {}",
                           count - 1, context.device, peer_device);
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
    // Record access first, so that concurrent imports get it.
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
