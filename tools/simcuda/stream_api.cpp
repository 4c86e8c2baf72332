#include "call.h"
#include "capture.h"
#include "simulator.h"

#include <algorithm>

namespace simcuda {

CUresult api::stream_create(CUstream *ph_stream, unsigned int flags) {
    return stream_create_with_priority(ph_stream, flags, 0);
}

CUresult api::stream_create_with_priority(CUstream *ph_stream, unsigned int flags, int priority) {
    Context &context = expect_found(current_context);
    expect(ph_stream && !(flags & ~unsigned(CU_STREAM_NON_BLOCKING)));
    priority = std::clamp(priority, greatest_stream_priority, 0);
    *ph_stream = make_stream(context, Stream::Kind::user, flags, priority)->handle;
    return CUDA_SUCCESS;
}

CUresult api::stream_destroy(CUstream h_stream) {
    Stream &stream = expect_found(find_stream, h_stream);
    expect(stream.kind == Stream::Kind::user, CUDA_ERROR_INVALID_HANDLE);
    end_stream(&stream);
    return CUDA_SUCCESS;
}

CUresult api::stream_get_priority(CUstream h_stream, int *priority) {
    return tell(priority, expect_found(find_stream, h_stream).priority);
}

CUresult api::stream_get_flags(CUstream h_stream, unsigned int *flags) {
    return tell(flags, expect_found(find_stream, h_stream).flags);
}

CUresult api::stream_get_id(CUstream h_stream, unsigned long long *stream_id) {
    return tell(stream_id, expect_found(find_stream, h_stream).id);
}

CUresult api::stream_get_ctx(CUstream h_stream, CUcontext *pctx) {
    Stream &stream = expect_found(find_stream, h_stream);
    expect_success(check_capture(stream));
    return tell(pctx, stream.context->handle);
}

CUresult api::stream_get_ctx_v2(CUstream h_stream, CUcontext *p_ctx, CUgreenCtx *p_green_ctx) {
    expect(p_green_ctx);
    Stream &stream = expect_found(find_stream, h_stream);
    expect_success(check_capture(stream));
    expect(p_ctx);
    *p_ctx = root_of(*stream.context).handle;
    *p_green_ctx =
        stream.context->root ? reinterpret_cast<CUgreenCtx>(stream.context->handle) : nullptr;
    return CUDA_SUCCESS;
}

CUresult api::stream_query(CUstream h_stream) {
    Stream &stream = expect_found(find_stream, h_stream);
    expect_success(check_no_capture(stream));
    expect_success(check_unsafe_call());
    const Clock clock = stream.clock;
    if (!sim().work.query(stream.tail)) {
        return CUDA_ERROR_NOT_READY;
    }
    clock.seen_by(sim().host);
    return CUDA_SUCCESS;
}

CUresult api::stream_synchronize(CUstream h_stream) {
    Stream &stream = expect_found(find_stream, h_stream);
    expect_success(check_no_capture(stream));
    expect_success(check_unsafe_call());
    wait_for(stream);
    return CUDA_SUCCESS;
}

CUresult api::launch_host_func(CUstream h_stream, CUhostFn fn, void *user_data) {
    Stream &stream = expect_found(find_stream, h_stream);
    expect(fn);
    return enqueue(stream, [=](Task &ret_task) {
        ret_task.run = [=] { fn(user_data); };
        ret_task.outside = true;
        return CUDA_SUCCESS;
    });
}

CUresult api::stream_add_callback(CUstream h_stream, CUstreamCallback callback, void *user_data,
                                  unsigned int flags) {
    Stream &stream = expect_found(find_stream, h_stream);
    expect_success(check_no_capture(stream));
    expect(callback && flags == 0);
    return enqueue(stream, [=](Task &ret_task) {
        ret_task.run = [=] { callback(h_stream, CUDA_SUCCESS, user_data); };
        ret_task.outside = true;
        return CUDA_SUCCESS;
    });
}

} // namespace simcuda
