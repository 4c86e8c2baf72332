#include "stream.h"

#include "call.h"
#include "capture.h"
#include "race.h"
#include "simulator.h"

#include <algorithm>

namespace simcuda {
namespace {

Stream &own_stream() {
    Context &context = current_context();
    expect(!context.root, CUDA_ERROR_INVALID_HANDLE);
    auto &stream = context.per_thread[this_thread.number];
    if (!stream) {
        stream.reset(make_stream(context, Stream::Kind::per_thread, 0, 0));
    }
    return *stream;
}

void follow(Stream &stream, const Stream &earlier, std::vector<OpRef> &before) {
    before.push_back(earlier.tail);
    stream.follow(earlier.clock);
}

} // namespace

// On an H100 no stream of a green context is blocking.
bool Stream::blocking() const {
    return kind != Kind::legacy && !(flags & CU_STREAM_NON_BLOCKING) && !context->root;
}

void Stream::follow(const Clock &earlier) {
    clock.join(earlier, sim().host);
    ended.join(earlier, sim().host);
}

Stream &find_stream(CUstream handle) {
    if (handle == CU_STREAM_PER_THREAD || (!handle && this_thread.per_thread_stream)) {
        return own_stream();
    }
    if (!handle || handle == CU_STREAM_LEGACY) {
        return *current_context().legacy;
    }
    return find_object(sim().streams, handle, "stream", CUDA_ERROR_INVALID_HANDLE);
}

Stream *make_stream(Context &context, Stream::Kind kind, unsigned flags, int priority) {
    auto *stream = new Stream;
    stream->kind = kind;
    stream->id = ++sim().stream_ids;
    stream->context = &context;
    stream->flags = flags;
    stream->priority = priority;
    stream->line = sim().host.new_line();
    stream->tail = context.barrier;
    stream->clock = stream->ended = context.barrier_clock;
    stream->handle = kind == Stream::Kind::user     ? sim().streams.insert(stream)
                     : kind == Stream::Kind::legacy ? CU_STREAM_LEGACY
                                                    : CU_STREAM_PER_THREAD;
    context.streams.insert(stream);
    return stream;
}

// Pending work of the stream still runs.
void end_stream(Stream *stream) {
    if (stream->capture) {
        destroy_in_capture(*stream);
    }
    Context &context = *stream->context;
    context.streams.erase(stream);
    if (stream->tail && !stream->tail->done()) {
        context.orphans.push_back(stream->tail);
    }
    context.orphan_clock.trim(sim().host);
    context.orphan_clock.join(stream->clock, sim().host);
    if (stream->kind == Stream::Kind::user) {
        sim().streams.destroy(stream->handle);
    }
}

// The legacy stream follows all blocking streams, and they follow it.
std::vector<OpRef> predecessors(Stream &stream) {
    std::vector<OpRef> before = {stream.tail};
    if (stream.kind == Stream::Kind::legacy) {
        for (const Stream *other : stream.context->streams) {
            if (other->blocking()) {
                follow(stream, *other, before);
            }
        }
    } else if (stream.blocking()) {
        follow(stream, *stream.context->legacy, before);
    }
    return before;
}

OpRef enqueue_task(Stream &stream, Task task, const std::vector<OpRef> &more) {
    std::vector<OpRef> before = predecessors(stream);
    before.insert(before.end(), more.begin(), more.end());
    stream.clock.trim(sim().host);
    const Clock begun = task.programmatic ? stream.ended : stream.clock;
    stream.clock.set(stream.line, ++stream.time);
    check_uses(task.uses, stream, stream.line, stream.time, stream.clock, begun);
    if (task.kernel || task.run || !task.uses.empty()) { // an event is no work
        stream.ended = task.kernel ? begun : stream.clock;
    }
    stream.tail = sim().work.add(std::move(task.run), task.outside, before, task.duration);
    return stream.tail;
}

void enqueue(Stream &stream, const Bind &bind) {
    check_capture(stream);
    Task task;
    bind(task);
    if (stream.capture) {
        add_node(stream, bind);
    } else {
        enqueue_task(stream, std::move(task));
    }
}

void wait_on_stream(Stream &stream, const OpRef &op, const Clock &clock) {
    stream.follow(clock);
    if (op && !op->done()) {
        enqueue_task(stream, {}, {op});
    }
}

void wait_for(Stream &stream) {
    const OpRef tail = stream.tail;
    const Clock clock = stream.clock;
    sim().work.wait(tail);
    clock.seen_by(sim().host);
    trim_pools();
}

void api::stream_create(CUstream *ph_stream, unsigned int flags) {
    stream_create_with_priority(ph_stream, flags, 0);
}

void api::stream_create_with_priority(CUstream *ph_stream, unsigned int flags, int priority) {
    Context &context = current_context();
    expect(ph_stream && !(flags & ~unsigned(CU_STREAM_NON_BLOCKING)));
    priority = std::clamp(priority, greatest_stream_priority, 0);
    *ph_stream = make_stream(context, Stream::Kind::user, flags, priority)->handle;
}

void api::stream_destroy(CUstream h_stream) {
    Stream &stream = find_stream(h_stream);
    expect(stream.kind == Stream::Kind::user, CUDA_ERROR_INVALID_HANDLE);
    end_stream(&stream);
}

void api::stream_get_priority(CUstream h_stream, int *priority) {
    tell(priority, find_stream(h_stream).priority);
}

void api::stream_get_flags(CUstream h_stream, unsigned int *flags) {
    Stream &stream = find_stream(h_stream);
    check_no_capture(stream);
    tell(flags, stream.flags);
}

void api::stream_get_id(CUstream h_stream, unsigned long long *stream_id) {
    Stream &stream = find_stream(h_stream);
    check_no_capture(stream);
    tell(stream_id, stream.id);
}

void api::stream_get_ctx(CUstream h_stream, CUcontext *pctx) {
    Stream &stream = find_stream(h_stream);
    check_capture(stream);
    tell(pctx, stream.context->handle);
}

void api::stream_get_ctx_v2(CUstream h_stream, CUcontext *p_ctx, CUgreenCtx *p_green_ctx) {
    expect(p_green_ctx);
    Stream &stream = find_stream(h_stream);
    check_capture(stream);
    expect(p_ctx);
    *p_ctx = root_of(*stream.context).handle;
    *p_green_ctx =
        stream.context->root ? reinterpret_cast<CUgreenCtx>(stream.context->handle) : nullptr;
}

CUresult api::stream_query(CUstream h_stream) {
    Stream &stream = find_stream(h_stream);
    check_no_capture(stream);
    check_unsafe_call();
    const Clock clock = stream.clock;
    if (!sim().work.query(stream.tail)) {
        return CUDA_ERROR_NOT_READY;
    }
    clock.seen_by(sim().host);
    return CUDA_SUCCESS;
}

void api::stream_synchronize(CUstream h_stream) {
    Stream &stream = find_stream(h_stream);
    check_no_capture(stream);
    check_unsafe_call();
    wait_for(stream);
}

void api::launch_host_func(CUstream h_stream, CUhostFn fn, void *user_data) {
    Stream &stream = find_stream(h_stream);
    expect(fn);
    enqueue(stream, [=](Task &ret_task) {
        ret_task.run = [=] { fn(user_data); };
        ret_task.outside = true;
    });
}

void api::stream_add_callback(CUstream h_stream, CUstreamCallback callback, void *user_data,
                              unsigned int flags) {
    Stream &stream = find_stream(h_stream);
    check_no_capture(stream);
    expect(callback && flags == 0);
    enqueue(stream, [=](Task &ret_task) {
        ret_task.run = [=] { callback(h_stream, CUDA_SUCCESS, user_data); };
        ret_task.outside = true;
    });
}

} // namespace simcuda
