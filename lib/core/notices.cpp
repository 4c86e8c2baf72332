#include "core/notices.h"

#include "core/call.h"
#include "core/watch.h"
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

emm_status begin_unwatched(emm_context &context) noexcept {
    emm_status status = admit(context);
    if (status != EMM_OK) {
        return status;
    }
    context.pending.enter();
    status = EMM_CALL(context, defer_cleanup, 1u);
    if (status < EMM_OK) {
        bool due = false;
        context.pending.leave(&due);
    }
    return status;
}

emm_status end_unwatched(emm_context &context) noexcept {
    emm_status status = admit(context);
    if (status != EMM_OK) {
        return status;
    }
    bool due = false;
    if (!context.pending.leave(&due)) {
        return observe::fail(EMM_E_INVALID_VALUE, 0,
                             "emm_defer_cleanup_end: no section has begun in this context");
    }
    status = EMM_CALL(context, defer_cleanup, 0u);
    if (due && context.captures.load(std::memory_order_relaxed) == 0) {
        flush(context);
    }
    return status;
}

} // namespace

emm_status notify_stream(emm_context &context, emm_stream stream, uint32_t notice) noexcept {
    const emm_status status = admit(context);
    return status == EMM_OK ? EMM_CALL(context, stream_notice, stream, notice) : status;
}

emm_status begin_capture(emm_context &context, emm_stream stream) noexcept {
    emm_status status = admit(context);
    if (status != EMM_OK) {
        return status;
    }
    ++context.captures;
    status = EMM_CALL(context, stream_notice, stream, EMM_STREAM_CAPTURE_BEGINS);
    if (status < EMM_OK) {
        leave_capture(context);
    }
    return status;
}

emm_status end_capture(emm_context &context, emm_stream stream) noexcept {
    const emm_status status = admit(context);
    if (status != EMM_OK) {
        return status;
    }
    if (!leave_capture(context)) {
        return observe::fail(EMM_E_INVALID_VALUE, 0,
                             "emm_capture_end: no capture has been announced in this context");
    }
    return EMM_CALL(context, stream_notice, stream, EMM_STREAM_CAPTURE_ENDS);
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
