#include "call.h"
#include "capture.h"
#include "simulator.h"

namespace simcuda {

CUresult find_event(CUevent handle, Event *&ret_event) {
    return find_object(sim().events, handle, "event", ret_event, CUDA_ERROR_INVALID_HANDLE);
}

void end_events(Context &context) {
    for (Event *event : context.events) {
        sim().events.retire(event->handle);
        delete event;
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

CUresult record(Event &event, Stream &stream) {
    expect_success(check_capture(stream));
    expect(event.context == &root_of(*stream.context), CUDA_ERROR_INVALID_HANDLE);
    if (stream.capture) {
        event.capture = stream.capture;
        event.nodes = stream.last_nodes;
        return CUDA_SUCCESS;
    }
    set(event, enqueue_task(stream, {}), stream.clock);
    return CUDA_SUCCESS;
}

CUresult wait(Event &event, Stream &stream) {
    expect_success(check_capture(stream));
    if (event.capture || stream.capture) {
        return wait_in_capture(event, stream);
    }
    wait_on_stream(stream, event.op, event.clock);
    return CUDA_SUCCESS;
}

// For calls that ask about an event or wait for it, which captures forbid.
CUresult find_recorded(CUevent handle, Event *&ret_event) {
    expect_success(find_event(handle, ret_event));
    expect_success(check_unsafe_call());
    return !ret_event->capture                   ? CUDA_SUCCESS
           : ret_event->capture->streams.empty() ? CUDA_ERROR_INVALID_VALUE
                                                 : CUDA_ERROR_CAPTURED_EVENT;
}

} // namespace

CUresult api::event_create(CUevent *ph_event, unsigned int flags) {
    constexpr unsigned known =
        CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    Context &context = expect_found(current_root);
    expect(ph_event && !(flags & ~known));
    auto *event = new Event;
    event->context = &context;
    event->flags = flags;
    event->handle = *ph_event = sim().events.insert(event);
    context.events.insert(event);
    return CUDA_SUCCESS;
}

CUresult api::event_destroy(CUevent h_event) {
    Event &event = expect_found(find_event, h_event);
    sim().events.erase(h_event);
    event.context->events.erase(&event);
    delete &event;
    return CUDA_SUCCESS;
}

CUresult api::event_record(CUevent h_event, CUstream h_stream) {
    Event &event = expect_found(find_event, h_event);
    Stream &stream = expect_found(find_stream, h_stream);
    return record(event, stream);
}

CUresult api::event_record_with_flags(CUevent h_event, CUstream h_stream, unsigned int flags) {
    return flags > CU_EVENT_RECORD_EXTERNAL ? CUDA_ERROR_INVALID_VALUE
                                            : event_record(h_event, h_stream);
}

CUresult api::event_query(CUevent h_event) {
    Event &event = expect_found(find_recorded, h_event);
    const Clock clock = event.clock;
    if (!sim().work.query(event.op)) {
        return CUDA_ERROR_NOT_READY;
    }
    clock.seen_by(sim().host);
    return CUDA_SUCCESS;
}

CUresult api::event_synchronize(CUevent h_event) {
    Event &event = expect_found(find_recorded, h_event);
    const OpRef op = event.op;
    const Clock clock = event.clock;
    sim().work.wait(op);
    clock.seen_by(sim().host);
    trim_pools();
    return CUDA_SUCCESS;
}

CUresult api::event_elapsed_time(float *p_milliseconds, CUevent h_start, CUevent h_end) {
    Event &start = expect_found(find_recorded, h_start);
    Event &end = expect_found(find_recorded, h_end);
    expect(p_milliseconds);
    expect(start.op && end.op && !((start.flags | end.flags) & CU_EVENT_DISABLE_TIMING),
           CUDA_ERROR_INVALID_HANDLE);
    if (!start.op->done() || !end.op->done()) {
        return CUDA_ERROR_NOT_READY;
    }
    *p_milliseconds =
        std::chrono::duration<float, std::milli>(end.op->finished - start.op->finished).count();
    return CUDA_SUCCESS;
}

CUresult api::stream_wait_event(CUstream h_stream, CUevent h_event, unsigned int flags) {
    Event &event = expect_found(find_event, h_event);
    Stream &stream = expect_found(find_stream, h_stream);
    expect(flags <= CU_EVENT_WAIT_EXTERNAL);
    return wait(event, stream);
}

// Covers all streams of the context, and is on none of them.
CUresult api::ctx_record_event(CUcontext h_ctx, CUevent h_event) {
    Context &context = expect_found(context_or_current, h_ctx);
    Event &event = expect_found(find_event, h_event);
    expect_success(check_no_captures(context));
    expect(event.context == &root_of(context), CUDA_ERROR_INVALID_HANDLE);
    set(event, sim().work.add(nullptr, false, work_of(context)), clock_of(context));
    return CUDA_SUCCESS;
}

CUresult api::ctx_wait_event(CUcontext h_ctx, CUevent h_event) {
    Context &context = expect_found(context_or_current, h_ctx);
    Event &event = expect_found(find_event, h_event);
    expect_success(check_no_captures(context));
    for (Stream *stream : context.streams) {
        wait_on_stream(*stream, event.op, event.clock);
    }
    context.barrier = sim().work.add(nullptr, false, {context.barrier, event.op});
    context.barrier_clock.join(event.clock, sim().host);
    return CUDA_SUCCESS;
}

} // namespace simcuda
