// Finds the stream that a call means.
#include "stream_order.h"

namespace emm::pool {
namespace {

const CUstream legacy_handle = reinterpret_cast<CUstream>(uintptr_t(1));

bool is_legacy(CUstream stream) {
    return stream == nullptr || stream == legacy_handle;
}

} // namespace

bool is_known_without_notice(emm_stream stream) {
    return is_legacy(stream) || stream == per_thread_handle || stream == EMM_STREAM_UNORDERED;
}

emm_status StreamOrder::expect_own(CUstream stream) {
    bool foreign = false;
    const CUresult result = cuda::is_foreign(context_.driver, context_.handle, stream, foreign);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) {
        return context_.failed(result, "cuStreamGetCtx");
    }
    return !foreign ? EMM_OK
                    : context_.host.fail(EMM_E_INVALID_VALUE, 0,
                                         "pool: the stream belongs to another context, whose work "
                                         "this one cannot wait for; nothing was done");
}

StreamPool *StreamOrder::known(emm_stream stream, Caller &ret_caller) {
    ret_caller = {};
    if (stream == EMM_STREAM_UNORDERED) {
        return &common_;
    }
    if (is_legacy(stream)) {
        ret_caller.kind = StreamKind::legacy;
        return &streams_.legacy;
    }
    StreamPool *pool = streams_.find_registered(stream);
    ret_caller.kind = pool ? StreamKind::registered : StreamKind::unregistered;
    ret_caller.stream = stream;
    ret_caller.key = pool ? pool->key_ : 0;
    return pool && pool->reachable() ? pool : nullptr;
}

StreamPool &StreamOrder::pool_of(const Caller &caller) {
    if (caller.kind == StreamKind::none) {
        return common_;
    }
    if (caller.kind == StreamKind::legacy) {
        return streams_.legacy;
    }
    return caller.capturing ? captures_.pool_of(caller) : streams_.find_or_make(caller.key);
}

emm_status StreamOrder::identify(emm_stream stream, Caller &ret_caller) {
    Caller caller;
    bool is_known = false;
    {
        const Lock lock(context_.mutex);
        is_known = known(stream, caller);
    }
    emm_status status = EMM_OK;
    if (caller.kind == StreamKind::unregistered) {
        status = ask_identity(caller);
    } else if (!is_known) { // it captures, or may
        status = ask_capture(caller);
    }
    if (status == EMM_OK) {
        ret_caller = caller;
    }
    return status;
}

emm_status StreamOrder::ask_identity(Caller &caller) {
    if (caller.stream == per_thread_handle) { // each thread has one in each context
        const Current current = context_.make_current();
        return current.result() == CUDA_SUCCESS
                   ? ask_identity(caller, thread_key())
                   : context_.failed(current.result(), "cuCtxPushCurrent");
    }
    if (const emm_status status = expect_own(caller.stream); status != EMM_OK) {
        return status;
    }
    return ask_identity(caller, reinterpret_cast<uintptr_t>(caller.stream));
}

// A capturing stream refuses to tell its id; within its capture another key suffices.
emm_status StreamOrder::ask_identity(Caller &caller, uint64_t key_in_capture) {
    bool capturing = false;
    CUresult result = events_.is_capturing(caller.stream, capturing);
    if (result != CUDA_SUCCESS) {
        return context_.failed(result, "cuStreamIsCapturing");
    }
    if (capturing) {
        caller.key = key_in_capture;
        return ask_capture(caller);
    }
    unsigned long long id = 0;
    result = context_.driver.cuStreamGetId(caller.stream, &id);
    if (result != CUDA_SUCCESS) {
        return context_.failed(result, "cuStreamGetId");
    }
    caller.key = id;
    return EMM_OK;
}

emm_status StreamOrder::ask_capture(Caller &caller) {
    const Driver &driver = context_.driver;
    if (!driver.serves_captures()) {
        return context_.host.fail(EMM_E_CAPTURING, 0,
                                  "pool: the driver lacks what memory on a capturing stream needs");
    }
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    const CUresult result =
        driver.capture_info(caller.stream, &status, &id, &graph, nullptr, nullptr);
    if (result != CUDA_SUCCESS) {
        return context_.failed(result, "cuStreamGetCaptureInfo");
    }
    caller.invalidated = status == CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    caller.capturing = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    caller.capture_id = id;
    caller.graph = graph;
    return EMM_OK;
}

// Whether the handle still means the stream of that identity, and the stream does not capture.
bool StreamOrder::is_same_and_not_capturing(emm_stream stream, uint64_t key) {
    if (stream == per_thread_handle) { // in our context
        Caller caller;
        caller.stream = stream;
        return ask_identity(caller) == EMM_OK && !caller.capturing && caller.key == key;
    }
    return events_.is_same_and_not_capturing(stream, key);
}

void StreamOrder::end_use(StreamPool &pool) {
    pool.references_--;
    if (!drop_if_orphaned(pool)) {
        forget_if_idle(pool);
    }
}

void StreamOrder::end_use_of_capture(StreamPool &pool) {
    pool.references_--;
    drop_if_orphaned(pool);
}

// Recycles a capture's free pool if the capture has ended during a call.
bool StreamOrder::drop_if_orphaned(StreamPool &pool) {
    const bool orphaned = pool.order == Order::capture && !pool.capture_ && pool.references_ == 0;
    if (orphaned) {
        streams_.recycle(pool);
    }
    return orphaned;
}

void StreamOrder::forget_if_idle(StreamPool &pool) {
    if (pool.is_idle()) {
        relink(pool);
        streams_.forget(pool);
    }
}

// The calling thread ends, and its own stream with it, so the stream's frees get their event now.
// If the driver has ended the stream first, the handle means a new stream.
void StreamOrder::end_own_stream() {
    Caller caller;
    caller.stream = per_thread_handle;
    if (!context_.serves() || ask_identity(caller) != EMM_OK || caller.capturing) {
        return;
    }
    Lock lock(context_.mutex);
    StreamPool *pool = streams_.find(caller.key);
    if (!pool || pool->stale_) {
        return;
    }
    pool->references_++;
    record_event(lock, *pool, per_thread_handle);
    end_use(*pool);
}

} // namespace emm::pool
