#include "core/lifecycle/stream_events.h"

#include "core/account/watch.h"
#include "core/lifecycle/manager.h"
#include "core/memory/call.h"
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

} // namespace emm::core
