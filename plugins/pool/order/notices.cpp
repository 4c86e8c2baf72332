// Notices from the program about its streams.
#include "stream_order.h"

namespace emm::pool {

emm_status StreamOrder::enter_stream(emm_stream stream) {
    if (is_known_without_notice(stream)) {
        return EMM_OK;
    }
    bool capturing = false;
    CUresult result = events_.is_capturing(stream, capturing);
    if (result != CUDA_SUCCESS) {
        return context_.failed(result, "cuStreamIsCapturing");
    }
    if (capturing) {
        return EMM_OK; // to ask its id would end the capture: it goes on like one without a notice
    }
    if (const emm_status status = expect_own(stream); status != EMM_OK) {
        return status;
    }
    const Driver &driver = context_.driver;
    unsigned long long id = 0;
    result = driver.cuStreamGetId(stream, &id);
    if (result != CUDA_SUCCESS) {
        return context_.failed(result, "cuStreamGetId");
    }
    unsigned flags = CU_STREAM_DEFAULT;
    if (driver.cuStreamGetFlags && driver.cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS) {
        flags = CU_STREAM_DEFAULT;
    }
    const Lock lock(context_.mutex);
    StreamPool *former = streams_.find_registered(stream);
    if (former && former->key_ == id) {
        return EMM_OK;
    }
    StreamPool &pool = streams_.find_or_make(id);
    if (former) { // its stream was destroyed without a word, and the handle came back
        memory_.close_magazines(*former);
        unregister(*former);
        forget_if_idle(*former);
    }
    streams_.enter(pool, stream);
    pool.nonblocking_ = (flags & CU_STREAM_NON_BLOCKING) != 0;
    registrations_.fetch_add(1, std::memory_order_release);
    relink(pool);
    return EMM_OK;
}

void StreamOrder::unregister(StreamPool &pool) {
    streams_.leave(pool);
    relink(pool);
    memory_.disband(pool);
}

// The stream is about to end: its frees get their event now, and its kept memory serves all
// streams.
emm_status StreamOrder::retire_stream(emm_stream stream) {
    Lock lock(context_.mutex);
    StreamPool *pool = streams_.find_registered(stream);
    if (!pool) {
        return EMM_OK;
    }
    pool->references_++;
    memory_.close_magazines(*pool);
    memory_.drop_spares(*pool);
    record_event_if_reachable(lock, *pool);
    unpinned_.wait(lock, [pool] { return pool->pins_ == 0; });
    unregister(*pool);
    pool->references_--;
    forget_if_idle(*pool);
    return EMM_OK;
}

// When this returns, no other thread is recording an event that would invalidate the capture.
void StreamOrder::begin_capture(emm_stream stream) {
    Lock lock(context_.mutex);
    // The memory of ended graphs can serve this capture. No event is recorded on the context: it
    // would invalidate the captures that are not announced.
    query(lock, unordered_);
    collect_graphs();
    StreamPool *pool = streams_.find_registered(stream);
    if (pool) {
        pool->references_++;
        memory_.close_magazines(*pool);
    }
    // These two get no event while the stream captures, and their frees may serve the capture.
    record_event_if_reachable(lock, streams_.legacy);
    if (pool) {
        record_event_if_reachable(lock, *pool);
        pool->capturing_++;
        pool->announced_ = stream;
    }
    announced_++;
    unpinned_.wait(lock, [this, pool] {
        return context_records_ == 0 && streams_.legacy.pins_ == 0 && (!pool || pool->pins_ == 0);
    });
    if (pool) {
        pool->references_--;
    }
}

void StreamOrder::end_capture(emm_stream stream) {
    Lock lock(context_.mutex);
    announced_ -= announced_ > 0 ? 1 : 0;
    StreamPool *pool = streams_.find_registered(stream);
    if (!pool || pool->capturing_ == 0) {
        pool = streams_.find_announced(stream); // the stream has retired since
    }
    if (pool) {
        pool->capturing_--;
        relink(*pool);
        forget_if_idle(*pool);
    }
    query(lock, unordered_);
}

} // namespace emm::pool
