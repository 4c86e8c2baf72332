#pragma once

#include "core/record/context.h"
#include "core/record/this_thread.h"
#include "core/tracking/tracking.h"
#include "observe/callers/walk.h"
#include "observe/events/event_log.h"
#include "observe/process.h"

#include <optional>

// The receivers of each event: the log that EMM_EVENT_LOG names, the application's hook, and the
// records of live allocations (EMM_TRACK). If there is a receiver, every context has the flag
// state_watched (log, hook) or state_tracked (records), so that calls leave the fast path. A
// context with state_tracked alone has a shorter path (core/memory/memory.h).
namespace emm::core {

emm_status set_event_hook(emm_event_hook hook, void *user_data, emm_event_hook_info *ret_previous);

// Called when a context begins to serve.
void watch_if_wanted(emm_context &context);

inline std::atomic<bool> is_logging{false}; // true before the first context is watched
inline std::atomic<bool> has_hook{false};

inline bool is_watched(const emm_context &context) noexcept {
    const uint32_t state = context.state.load(std::memory_order_acquire);
    return (state & state_forked) == 0 && (state & (state_watched | state_tracked)) != 0;
}

inline emm_deviceptr address_of(const void *host) noexcept {
    return reinterpret_cast<uintptr_t>(host);
}

// One call of a watched context, from its beginning to its end.
class WatchedCall {
public:
    WatchedCall(emm_context &context, observe::EventType type, emm_deviceptr address, size_t size,
                emm_stream stream, const void *caller) noexcept
        : context_(context), type_(type), address_(address), size_(size), stream_(stream),
          buffer_(is_logging.load(std::memory_order_relaxed) ? observe::event_buffer() : nullptr),
          caller_(buffer_ ? observe::outer_caller(caller) : caller) {
        if (buffer_ || has_hook.load(std::memory_order_relaxed)) {
            uncancelled_.emplace();
        }
        if (buffer_) {
            start();
        }
    }

    // These return `status`. If the call failed, its output is ignored.
    emm_status allocated(emm_status status, emm_deviceptr address) noexcept {
        address_ = status >= EMM_OK ? address : 0;
        if (is_tracking() && (address_ != 0 || buffer_)) {
            stack_ = address_ != 0 ? track(context_, type_, address_, size_, stream_, caller_)
                                   : stack_of(caller_); // of a call that has failed
        }
        return done(status);
    }
    emm_status done(emm_status status) noexcept {
        if (buffer_ && !observe::is_forked_child()) { // the log belongs to the parent
            record(status);
        }
        if (type_ < observe::EventType::reset && has_hook.load(std::memory_order_relaxed)) {
            tell_hook(status);
        }
        return status;
    }

private:
    void start() noexcept {
        if (is_allocation(type_)) {
            start_ = observe::event_ticks();
            return;
        }
        late_ = (context_.state.load(std::memory_order_relaxed) & state_late) != 0;
        outer_ = buffer_->begin();
        start_ = observe::event_ticks();
        buffer_->began(start_);
    }
    void record(emm_status status) noexcept {
        const observe::Stack *const stack = stack_ ? stack_ : observe::stack_of_tags();
        const uint32_t python = stack ? observe::python_calls_number(*stack) : 0;
        if (is_allocation(type_)) {
            outer_ = buffer_->begin();
        }
        const uint64_t end = observe::event_ticks();
        observe::EventRecord *const record = buffer_->next(address_of(caller_));
        if (!record) {
            buffer_->abandon(outer_);
            return;
        }
        record->start = start_;
        record->end = end;
        record->address = address_;
        record->size = size_;
        record->stream = address_of(stream_);
        record->caller = address_of(caller_);
        record->context = context_.number;
        record->status = status;
        record->device = static_cast<uint16_t>(context_.device);
        record->type = type_;
        record->python = python;
        record->late = late_ && is_free(type_) && status >= EMM_OK;
        buffer_->commit(record->moment(), outer_);
    }
    void tell_hook(emm_status status) const noexcept;

    // Holds cancellation back until the record is complete. A live allocation's record needs no
    // such care: between the plugin's call and the record, no thread is cancelled.
    std::optional<Uncancelled> uncancelled_;
    emm_context &context_;
    const observe::EventType type_;
    emm_deviceptr address_;
    const size_t size_;
    const emm_stream stream_;
    observe::EventBuffer *const buffer_; // NULL: not recorded
    const void *const caller_;
    bool late_ = false;
    uint64_t outer_ = 0, start_ = 0;
    const observe::Stack *stack_ = nullptr; // of a tracked allocation
};

// A call that neither allocates nor frees.
template <class Call>
emm_status watched(emm_context &context, observe::EventType type, const void *caller, Call call) {
    if (!is_watched(context)) {
        return call();
    }
    WatchedCall watch(context, type, 0, 0, EMM_STREAM_UNORDERED, caller);
    return watch.done(call());
}

} // namespace emm::core
