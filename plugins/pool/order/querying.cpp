// Events: what is complete.
#include "stream_order.h"

namespace emm::pool {

// If a stream has nothing to do, all its frees are complete. This question costs less than an
// event, and is answered at once. A blocking stream is not asked, because the legacy stream's work
// may come before its own without being in it.
bool StreamOrder::query_stream(Lock &lock, StreamPool &pool) {
    if (!pool.nonblocking_ || !pool.reachable() || !events_.can_query_streams() ||
        !context_.serves()) {
        return false;
    }
    const uint64_t tag = clock_.end_tag();
    pool.pins_++;
    pool.references_++;
    lock.unlock();
    const CUresult result = events_.query_stream(pool.handle_);
    lock.lock();
    end_pin(pool);
    context_.note_error(result);
    if (result == CUDA_SUCCESS) {
        complete(pool, tag);
    }
    return result == CUDA_SUCCESS;
}

// While an event is queried, it is out of the list, so no other thread has it. If the query fails,
// the event still stands for its frees, and is queried again later.
void StreamOrder::query(Lock &lock, StreamPool &pool) {
    pool.references_++;
    List<RecordedEvent, &RecordedEvent::link> failed;
    while (RecordedEvent *event = pool.events_.pop_front()) {
        lock.unlock();
        const CUresult result = events_.query(event->event);
        lock.lock();
        context_.note_error(result);
        if (result == CUDA_ERROR_NOT_READY) {
            pool.events_.push_front(*event);
            break;
        }
        if (result != CUDA_SUCCESS) {
            failed.push_front(*event);
            continue;
        }
        const uint64_t tag = event->tag;
        spare_events_.push_back(*event);
        &pool == &unordered_ ? complete_all(tag) : complete(pool, tag);
    }
    while (RecordedEvent *event = failed.pop_front()) {
        pool.events_.push_front(*event);
    }
    pool.references_--;
    relink(pool);
}

void StreamOrder::record_and_query(Lock &lock, StreamPool &pool) {
    pool.references_++;
    record_event_if_reachable(lock, pool);
    query(lock, pool);
    pool.references_--;
    forget_if_idle(pool);
}

void StreamOrder::record_and_query_unordered(Lock &lock) {
    record_unordered_event(lock);
    query(lock, unordered_);
}

// Records what can be recorded, and queries everything. `with_context` is for unordered calls: a
// context event would invalidate an unannounced capture.
void StreamOrder::record_and_query_all(Lock &lock, bool with_context) {
    if (with_context) {
        record_unordered_event(lock);
    }
    query_streams(lock, true);
}

// Queries at most `most` streams, the longest unasked first.
void StreamOrder::query_streams(Lock &lock, bool recording, size_t most) {
    query(lock, unordered_);
    size_t count = 0;
    for (StreamPool *d = askable_.first(); d && count < most; d = askable_.next(*d)) {
        count++;
    }
    for (; count > 0 && !askable_.empty() && context_.serves(); count--) {
        StreamPool &pool = *askable_.first();
        askable_.remove(pool); // to the end: relink() in query puts it there
        pool.references_++;
        if (recording) {
            record_event_if_reachable(lock, pool);
        }
        query(lock, pool);
        pool.references_--;
        forget_if_idle(pool);
    }
}

// Records no event on the context, which would invalidate an unannounced capture, unless memory was
// freed with no stream.
void StreamOrder::query_for_pinned(Lock &lock, const std::function<bool()> &has_enough) {
    size_t count = 0;
    for (StreamPool *d = askable_.first(); d; d = askable_.next(*d)) {
        count++;
    }
    for (; count > 0 && !askable_.empty() && context_.serves() && !has_enough(); count--) {
        StreamPool &pool = *askable_.first();
        pool.references_++;
        if (!pool.pinned.empty() && !query_stream(lock, pool)) {
            record_event_if_reachable(lock, pool);
            query(lock, pool);
        }
        pool.references_--;
        if (pool.askable_.linked) { // others have their turn first
            askable_.remove(pool);
            relink(pool);
        }
        forget_if_idle(pool);
    }
    if (!unordered_.pinned.empty() && !has_enough()) {
        query(lock, unordered_);
        record_unordered_event(lock);
    }
}

// Waits until all earlier frees are complete. False: the device has failed, or nothing can wait.
bool StreamOrder::wait_for_context(Lock &lock) {
    if (announced_ > 0) {
        return wait_beside_captures(lock);
    }
    RecordedEvent *event = record_context_event(lock);
    if (!event) {
        return false;
    }
    const bool waits = events_.has_context_events();
    lock.unlock();
    const CUresult result = waits ? events_.wait(event->event) : CUDA_SUCCESS;
    lock.lock();
    context_.note_error(result);
    if (result != CUDA_SUCCESS && waits) {
        unordered_.events_.push_back(*event); // the event stands for earlier frees
        return false;
    }
    finish_context_event(*event);
    return true;
}

bool StreamOrder::wait_beside_captures(Lock &lock) {
    const uint64_t tag = clock_.end_tag();
    lock.unlock();
    const CUresult result = await_work_of(context_.driver, context_.handle, context_.id);
    lock.lock();
    context_.note_error(result);
    if (result == CUDA_SUCCESS) {
        complete_all(tag);
    }
    return result == CUDA_SUCCESS;
}

// The first event recorded after all frees of the free pool with tags up to `tag`; or NULL.
RecordedEvent *StreamOrder::event_for(const StreamPool &pool, uint64_t tag) {
    RecordedEvent *event = pool.events_.first();
    while (event && event->tag < tag) {
        event = pool.events_.next(*event);
    }
    return event;
}

bool StreamOrder::wait_on_stream(Lock &lock, const Caller &caller, StreamPool &pool, uint64_t tag) {
    RecordedEvent *event = event_for(pool, tag);
    if (!event) {
        return false;
    }
    pool.events_.remove(*event); // so that no other thread records this event anew meanwhile
    pool.references_++;
    lock.unlock();
    const CUresult result = events_.wait_on_stream(caller.stream, event->event);
    lock.lock();
    context_.note_error(result);
    pool.events_.push_front(*event);
    pool.references_--;
    relink(pool);
    return result == CUDA_SUCCESS;
}

} // namespace emm::pool
