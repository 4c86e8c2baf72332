// Events: when one is recorded, and what must not be touched meanwhile.
#include "stream_order.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace emm::pool {

RecordedEvent *StreamOrder::spare_event() {
    RecordedEvent *event = spare_events_.pop_front();
    return event ? event : new (std::nothrow) RecordedEvent;
}

void StreamOrder::reserve_event() {
    if (spare_events_.empty()) {
        spare_events_.push_back(*new RecordedEvent);
    }
}

void StreamOrder::end_pin(StreamPool &pool) {
    pool.references_--;
    if (--pool.pins_ == 0) {
        unpinned_.notify_all();
    }
}

// Records an event on `stream`, which is the free pool's and lives, after all that the free pool
// has freed. The tag is closed first: a free that comes while the lock is away gets the next one.
bool StreamOrder::record_event(Lock &lock, StreamPool &pool, CUstream stream) {
    if (pool.newest <= pool.recorded) {
        return true;
    }
    RecordedEvent *event = spare_event();
    if (!event || !context_.serves()) {
        return false;
    }
    event->tag = clock_.end_tag();
    pool.pins_++;
    pool.references_++;
    lock.unlock();
    const CUresult result = events_.record(event->event, stream);
    lock.lock();
    end_pin(pool);
    context_.note_error(result);
    if (result != CUDA_SUCCESS) {
        spare_events_.push_back(*event);
        return false;
    }
    pool.events_.push_back(*event);
    pool.recorded = std::max(pool.recorded, event->tag);
    pool.open_bytes_ = 0;
    pool.open_frees_ = 0;
    pool.events_made_++;
    relink(pool);
    return true;
}

bool StreamOrder::record_event_if_reachable(Lock &lock, StreamPool &pool) {
    const bool reachable = pool.reachable() && (&pool != &streams_.legacy || announced_ == 0);
    return reachable && record_event(lock, pool, pool.handle_);
}

// While a capture is announced, nothing is recorded, because that would invalidate the capture. If
// there are many events already, this one replaces the newest.
bool StreamOrder::record_unordered_event(Lock &lock) {
    if (unordered_.newest <= unordered_.recorded) {
        return false;
    }
    RecordedEvent *event = record_context_event(lock);
    if (event && events_.has_context_events()) {
        int outstanding = 0;
        for (RecordedEvent *e = unordered_.events_.first(); e; e = unordered_.events_.next(*e)) {
            outstanding++;
        }
        if (outstanding >= most_context_events) {
            RecordedEvent *replaced = unordered_.events_.last();
            unordered_.events_.remove(*replaced);
            spare_events_.push_back(*replaced);
        }
        unordered_.events_.push_back(*event);
    } else if (event) {
        finish_context_event(*event);
    }
    return event;
}

// For a driver call that would invalidate a capture. Announcements wait for its end.
template <class Call> CUresult StreamOrder::unless_capturing(Lock &lock, Call call) {
    if (announced_ != 0) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    context_records_++;
    lock.unlock();
    const CUresult result = call();
    lock.lock();
    if (--context_records_ == 0) {
        unpinned_.notify_all();
    }
    context_.note_error(result);
    return result;
}

RecordedEvent *StreamOrder::record_context_event(Lock &lock) {
    RecordedEvent *event = announced_ == 0 && context_.serves() ? spare_event() : nullptr;
    if (!event) {
        return nullptr;
    }
    event->tag = clock_.end_tag();
    const CUresult result =
        unless_capturing(lock, [&] { return events_.record_on_context(event->event); });
    if (result != CUDA_SUCCESS) {
        spare_events_.push_back(*event);
        return nullptr;
    }
    unordered_.recorded = std::max(unordered_.recorded, event->tag);
    unordered_.open_bytes_ = 0;
    unordered_.open_frees_ = 0;
    return event;
}

// All work that the event stands for is done.
void StreamOrder::finish_context_event(RecordedEvent &event) {
    const uint64_t tag = event.tag;
    spare_events_.push_back(event);
    complete_all(tag);
}

// Records an event for work that no other event covers: of streams that ended unannounced, or
// cannot get one. Waits a while for it, because the caller is about to give memory back.
void StreamOrder::record_what_is_left(Lock &lock) {
    bool left = unordered_.newest > unordered_.completed;
    for (const StreamPool *d = incomplete_.first(); d && !left; d = incomplete_.next(*d)) {
        left = d->newest > d->recorded;
    }
    RecordedEvent *event = left && announced_ == 0 ? record_context_event(lock) : nullptr;
    if (event && !events_.has_context_events()) {
        finish_context_event(*event);
    } else if (event) {
        const uint64_t tag = event->tag;
        unordered_.events_.push_back(*event);
        query(lock, unordered_);
        for (int i = 0; i < trim_rounds && unordered_.completed < tag && context_.serves(); i++) {
            lock.unlock();
            std::this_thread::sleep_for(std::chrono::nanoseconds(trim_pause_ns));
            lock.lock();
            query(lock, unordered_);
        }
    }
}

// --- after a call --------------------------------------------------------------------------------

void StreamOrder::do_maintenance(Lock &lock, StreamPool &pool, const Caller *caller,
                                 const Allowance &allowance, bool batch) {
    if (&pool == &unordered_) {
        if (batch || is_worth_an_event(pool.open_frees_, pool.open_bytes_, allowance)) {
            pool.open_frees_ = 0;
            pool.open_bytes_ = 0;
            query(lock, unordered_);
            record_unordered_event(lock);
        }
    } else if (caller && caller->kind == StreamKind::unregistered && !caller->capturing &&
               wants_event(pool)) {
        pool.answered_ = wanted_;
        record_event(lock, pool, caller->stream);
    }
    if (const size_t streams = streams_to_ask(streams_.made_since_asked())) {
        streams_.reset_made_count();
        query_streams(lock, false, streams);
    }
    if (captures_.any_graph_gone()) {
        captures_.collect();
    }
}

// A stream that is known to live during this call only gets its event now or never.
bool StreamOrder::wants_event(const StreamPool &pool) const {
    if (pool.newest <= pool.recorded || (!streams_.has_several() && pool.pinned.empty())) {
        return false;
    }
    return pool.answered_ != wanted_ ||
           is_worth_a_stream_event(pool.open_bytes_, pool.balance_, pool.events_made_);
}

uint64_t StreamOrder::answered(const StreamPool &pool) const {
    return wants_event(pool) ? pool.answered_ : wanted_.load();
}

// --- for managers of other contexts --------------------------------------------------------------

// A context that has died, or is lost, does no more work.
bool StreamOrder::may_have_work() const {
    return context_.lives() && context_.serves();
}

// False: not possible now.
bool StreamOrder::mark_work(WorkMark &ret_mark) {
    WorkMark mark = {context_.handle, context_.id, number_, nullptr};
    if (may_have_work()) {
        Lock lock(context_.mutex);
        const CUresult result =
            unless_capturing(lock, [&] { return events_.record_on_context(mark.event); });
        lock.unlock();
        if (result != CUDA_SUCCESS && mark.event) {
            events_.destroy(mark.event);
            mark.event = nullptr;
        }
        if (result != CUDA_SUCCESS && context_.serves()) {
            return false;
        }
    }
    ret_mark = mark;
    return true;
}

// The error of a failed query may be the calling thread's context's, so it is not noted.
bool StreamOrder::is_over(CUevent event) {
    return !may_have_work() || events_.query(event) == CUDA_SUCCESS;
}

bool StreamOrder::take_mark_of(uint64_t manager, WorkMark &ret_mark) noexcept {
    const Lock lock(context_.mutex);
    for (Marks &all : marks_) {
        const auto found = std::find_if(all.marks.begin(), all.marks.end(),
                                        [&](const auto &mark) { return mark.manager == manager; });
        if (found != all.marks.end()) {
            ret_mark = *found;
            all.marks.erase(found);
            return true;
        }
    }
    return false;
}

bool StreamOrder::wait_for_all_work() {
    if (!may_have_work()) {
        return true;
    }
    Lock lock(context_.mutex);
    return wait_for_context(lock) || !context_.serves();
}

// Waits for all work of the context, also beside captures, if there is memory for a fence.
CUresult StreamOrder::await_work() {
    CUresult result = await_work_of(context_.driver, context_.handle, context_.id);
    context_.note_error(result);
    if (result != CUDA_SUCCESS && context_.serves()) {
        Lock lock(context_.mutex);
        result = unless_capturing(lock, [&] { return events_.synchronize(); });
    }
    return result;
}

} // namespace emm::pool
