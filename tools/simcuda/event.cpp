#include "call.h"
#include "capture.h"
#include "simulator.h"

namespace simcuda {

Event &find_event(CUevent handle) {
    return find_object(sim().events, handle, "event", CUDA_ERROR_INVALID_HANDLE);
}

void end_events(Context &context) {
    for (Event *event : context.events) {
        sim().events.retire(event->handle);
    }
    context.events.clear();
}

namespace {

void set(Event &event, OpRef op, Clock clock) {
    event.op = std::move(op);
    event.clock = std::move(clock);
    event.capture = nullptr;
    event.nodes.clear();
}

void record(Event &event, Stream &stream) {
    check_capture(stream);
    expect(event.context == &root_of(*stream.context), CUDA_ERROR_INVALID_HANDLE);
    if (stream.capture) {
        event.capture = stream.capture;
        event.nodes = stream.last_nodes;
    } else {
        set(event, enqueue_task(stream, {}), stream.clock);
    }
}

void wait(Event &event, Stream &stream) {
    check_capture(stream);
    if (event.capture || stream.capture) {
        wait_in_capture(event, stream);
    } else {
        wait_on_stream(stream, event.op, event.clock);
    }
}

// For calls that ask about an event or wait for it, which captures forbid.
Event &find_recorded(CUevent handle) {
    Event &event = find_event(handle);
    check_unsafe_call();
    if (event.capture) {
        refuse(event.capture->streams.empty() ? CUDA_ERROR_INVALID_VALUE
                                              : CUDA_ERROR_CAPTURED_EVENT);
    }
    return event;
}

} // namespace

void api::event_create(CUevent *ph_event, unsigned int flags) {
    constexpr unsigned known =
        CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    Context &context = current_root();
    expect(ph_event && !(flags & ~known));
    auto *event = new Event;
    event->context = &context;
    event->flags = flags;
    event->handle = *ph_event = sim().events.insert(event);
    context.events.insert(event);
}

void api::event_destroy(CUevent h_event) {
    Event &event = find_event(h_event);
    event.context->events.erase(&event);
    sim().events.destroy(h_event);
}

void api::event_record(CUevent h_event, CUstream h_stream) {
    Event &event = find_event(h_event);
    Stream &stream = find_stream(h_stream);
    record(event, stream);
}

void api::event_record_with_flags(CUevent h_event, CUstream h_stream, unsigned int flags) {
    expect(flags <= CU_EVENT_RECORD_EXTERNAL);
    event_record(h_event, h_stream);
}

CUresult api::event_query(CUevent h_event) {
    Event &event = find_recorded(h_event);
    const Clock clock = event.clock;
    if (!sim().work.query(event.op)) {
        return CUDA_ERROR_NOT_READY;
    }
    clock.seen_by(sim().host);
    return CUDA_SUCCESS;
}

void api::event_synchronize(CUevent h_event) {
    Event &event = find_recorded(h_event);
    const OpRef op = event.op;
    const Clock clock = event.clock;
    sim().work.wait(op);
    clock.seen_by(sim().host);
    trim_pools();
}

void api::event_elapsed_time(float *p_milliseconds, CUevent h_start, CUevent h_end) {
    Event &start = find_recorded(h_start);
    Event &end = find_recorded(h_end);
    expect(p_milliseconds);
    expect(start.op && end.op && !((start.flags | end.flags) & CU_EVENT_DISABLE_TIMING),
           CUDA_ERROR_INVALID_HANDLE);
    expect(start.op->done() && end.op->done(), CUDA_ERROR_NOT_READY);
    *p_milliseconds =
        std::chrono::duration<float, std::milli>(end.op->finished - start.op->finished).count();
}

void api::stream_wait_event(CUstream h_stream, CUevent h_event, unsigned int flags) {
    Event &event = find_event(h_event);
    Stream &stream = find_stream(h_stream);
    expect(flags <= CU_EVENT_WAIT_EXTERNAL);
    wait(event, stream);
}

// Covers all streams of the context; the event itself is on no stream.
void api::ctx_record_event(CUcontext h_ctx, CUevent h_event) {
    Context &context = context_or_current(h_ctx);
    Event &event = find_event(h_event);
    check_no_captures(context);
    expect(event.context == &root_of(context), CUDA_ERROR_INVALID_HANDLE);
    set(event, sim().work.add(nullptr, false, work_of(context)), clock_of(context));
}

void api::ctx_wait_event(CUcontext h_ctx, CUevent h_event) {
    Context &context = context_or_current(h_ctx);
    Event &event = find_event(h_event);
    check_no_captures(context);
    for (Stream *stream : context.streams) {
        wait_on_stream(*stream, event.op, event.clock);
    }
    context.barrier = sim().work.add(nullptr, false, {context.barrier, event.op});
    context.barrier_clock.join(event.clock, sim().host);
}

} // namespace simcuda
