#include "call.h"
#include "capture.h"
#include "simulator.h"

#include <algorithm>

namespace simcuda {

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
    tell(flags, find_stream(h_stream).flags);
}

void api::stream_get_id(CUstream h_stream, unsigned long long *stream_id) {
    tell(stream_id, find_stream(h_stream).id);
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

void api::stream_query(CUstream h_stream) {
    Stream &stream = find_stream(h_stream);
    check_no_capture(stream);
    check_unsafe_call();
    const Clock clock = stream.clock;
    expect(sim().work.query(stream.tail), CUDA_ERROR_NOT_READY);
    clock.seen_by(sim().host);
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
