// Everything that freed memory waits for: the streams of the program, the events recorded on them,
// captures, and further uses of allocations. The only code that calls cuEvent*, cuStream* and graph
// user objects. FreedMemory decides what the end of work means for memory.
//
//   callers.cpp        which stream a call means
//   notices.cpp        streams registered and retired, captures announced
//   recording.cpp      events: when one is recorded
//   querying.cpp       events: which are complete
//   completion.cpp     what follows from that; further uses of freed memory
//   bounded_wait.cpp   waiting for a while, for work that is nearly done
//
// The pool's lock is held, except where said otherwise. Functions that take a Lock & may let go of
// it for a driver call; their callers look at everything anew afterwards.
#pragma once

#include "caller.h"
#include "captures.h"
#include "cuda/served_context.h"
#include "events.h"
#include "freed_memory.h"
#include "heap/tag_clock.h"
#include "policy/events.h"
#include "policy/growth.h"
#include "stream_pool.h"
#include "streams.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>

namespace emm::pool {

// An event after all work that a context held. It is the asking manager's, so it outlasts a reset
// of that context's own manager, whose end takes it back.
struct WorkMark {
    CUcontext context = nullptr;
    uint64_t context_id = 0;
    uint64_t manager = 0;    // its number: as long as it is there, the context is too
    CUevent event = nullptr; // NULL: there is nothing to wait for
};

// One in each context, set after every free with a tag up to `tag`.
struct Marks {
    uint64_t tag = 0;
    std::vector<WorkMark> marks;
};

// The legacy stream, the per-thread stream, and none.
bool is_known_without_notice(emm_stream stream);

class StreamOrder {
public:
    StreamOrder(ServedContext &context, FreedMemory &memory);
    ~StreamOrder(); // after forget_memory()
    StreamOrder(const StreamOrder &) = delete;
    StreamOrder &operator=(const StreamOrder &) = delete;

    ServedContext &context() const { return context_; }
    const TagClock &clock() const { return clock_; }

    // --- free pools ---
    // The pools of complete memory, of unordered memory, and of unordered portable host memory.
    StreamPool &common() { return common_; }
    StreamPool &unordered() { return unordered_; }
    StreamPool &cross_context() { return cross_context_; }
    StreamPool *first_incomplete() const { return incomplete_.first(); } // of streams'
    StreamPool *next_incomplete(const StreamPool &pool) const { return incomplete_.next(pool); }
    template <class Function> void each_pool(Function function) {
        for (StreamPool *pool : {&common_, &unordered_, &cross_context_, &streams_.legacy}) {
            function(*pool);
        }
        streams_.each(function);
    }
    void forget_memory(); // and all uses; registered streams stay so

    // --- callers ---
    // No lock is held by these three. The stream lives, because the call that carries it has not
    // returned.
    emm_status identify(emm_stream stream, Caller &ret_caller);
    emm_status enter_capture(const Caller &caller) { return captures_.enter(caller); }
    bool is_same_and_not_capturing(emm_stream stream, uint64_t key);
    // The free pool to allocate for; NULL if finding it takes a driver call. Also gives the caller,
    // as far as it is known.
    StreamPool *known(emm_stream stream) {
        Caller caller;
        return known(stream, caller);
    }
    StreamPool *known(emm_stream stream, Caller &ret_caller);
    StreamPool &pool_of(const Caller &caller); // once its stream is identified
    // Called by a call that released the lock while it used the free pool, and is done with the
    // pool.
    void end_use(StreamPool &pool);
    void end_use_of_capture(StreamPool &pool); // the same, but a stream's free pool stays
    void forget_if_idle(StreamPool &pool);

    // --- notices; no lock is held ---
    emm_status enter_stream(emm_stream stream);
    emm_status retire_stream(emm_stream stream);
    void begin_capture(emm_stream stream);
    void end_capture(emm_stream stream);
    void end_own_stream(); // of the calling thread
    uint64_t registrations() const { return registrations_.load(std::memory_order_acquire); }
    bool has_announced_captures() const { return announced_ > 0; }

    // --- allocations and frees ---
    // An allocation has been taken for a free pool, which may be a capture's.
    void adopt(BlockOrSlot allocation, StreamPool &pool);
    void record_use(Lock &lock, BlockOrSlot allocation, const Caller &caller, StreamPool *pool);
    UseRecord &begin_export(BlockOrSlot allocation);
    void end_export(Lock &lock, UseRecord &record);
    // An allocation is no more; where its memory goes depends on who may still use it. Returns a
    // stream that should get an event now, or NULL.
    StreamPool *free(BlockOrSlot allocation, StreamPool &pool);
    // `bytes` have just been freed into the free pool.
    void mark_dirty(StreamPool &pool, uint64_t bytes, uint32_t frees = 1);
    // Work that a call leaves behind for once in a while.
    // `batch`: of blocks freed with no stream, which is worth an event.
    void do_maintenance(Lock &lock, StreamPool &pool, const Caller *caller,
                        const Allowance &allowance, bool batch);

    // --- events ---
    bool record_event_if_reachable(Lock &lock, StreamPool &pool);
    void record_and_query_all(Lock &lock, bool with_context);
    void record_what_is_left(Lock &lock);
    void await_recorded(Lock &lock); // for a millisecond
    void record_and_query(Lock &lock, StreamPool &pool);
    void record_and_query_unordered(Lock &lock);
    // Whether unordered memory is pending, and the driver can be asked about it without a wait.
    bool can_query_unordered() const {
        return events_.has_context_events() && unordered_.newest > unordered_.completed;
    }
    // Queries streams until `has_enough` returns true.
    void query_for_pinned(Lock &lock, const std::function<bool()> &has_enough);
    // The next event that is recorded needs no host memory then. Throws std::bad_alloc.
    void reserve_event();
    bool wait_for_context(Lock &lock);
    bool wait_beside_captures(Lock &lock); // the same, and harms no unannounced capture
    // For calls on a stream, and for those with none.
    void wait_bounded(Lock &lock, const StreamPool &pool, const std::function<bool()> &has_enough);
    // Work of the caller's stream waits for what `pool` freed with tags up to `tag`.
    static bool has_event_for(const StreamPool &pool, uint64_t tag) { return event_for(pool, tag); }
    bool wait_on_stream(Lock &lock, const Caller &caller, StreamPool &pool, uint64_t tag);
    // Streams that are not registered are asked for an event in their next call.
    void call_for_events() { wanted_++; }
    uint64_t calls_for_events() const { return wanted_.load(std::memory_order_relaxed); }
    bool has_answered(const StreamPool &pool) const { return pool.answered_ == wanted_; }
    uint64_t answered(const StreamPool &pool) const; // the last call, unless it has one to answer
    void collect_graphs() { captures_.collect(); }

    // --- for managers of other contexts; no lock is held ---
    uint64_t number() const { return number_; }
    void enter_registry(); // from now on
    void leave_registry();
    bool mark_work(WorkMark &ret_mark);
    bool is_over(CUevent event); // of a mark
    bool lives() const { return context_.lives(); }
    bool wait_for_all_work();
    CUresult await_work();
    // Takes out a mark that this manager has in that manager's context. False: no such mark.
    bool take_mark_of(uint64_t manager, WorkMark &ret_mark) noexcept;

private:
    friend class Captures;
    friend class CrossContext;

    emm_status expect_own(CUstream stream);
    emm_status ask_identity(Caller &caller);
    emm_status ask_identity(Caller &caller, uint64_t key_in_capture);
    emm_status ask_capture(Caller &caller);

    void unregister(StreamPool &pool);
    void end_pin(StreamPool &pool);
    static RecordedEvent *event_for(const StreamPool &pool, uint64_t tag);
    RecordedEvent *spare_event();
    bool record_event(Lock &lock, StreamPool &pool, CUstream stream);
    template <class Call> CUresult unless_capturing(Lock &lock, Call call);
    RecordedEvent *record_context_event(Lock &lock);
    void finish_context_event(RecordedEvent &event);
    bool record_unordered_event(Lock &lock); // after all work of the context
    bool wants_event(const StreamPool &pool) const;

    void query(Lock &lock, StreamPool &pool);
    bool query_stream(Lock &lock, StreamPool &pool);
    void query_streams(Lock &lock, bool recording, size_t most = SIZE_MAX);
    bool is_working() const;
    bool may_have_work() const;

    uint64_t now() const { return clock_.now(); } // the tag for a free
    void complete(StreamPool &pool, uint64_t tag);
    void complete_all(uint64_t tag);
    StreamPool *free_with_uses(BlockOrSlot allocation, StreamPool &pool, Capture *capture);
    UseRecord &record_of(BlockOrSlot allocation);
    void add_use(BlockOrSlot allocation, Use use);
    StreamPool *advance(UseRecord &record);
    void finish(UseRecord &record);
    void relink(StreamPool &pool);
    bool drop_if_orphaned(StreamPool &pool);

    // Members that calls on unregistered streams read.
    alignas(128) ServedContext &context_;
    const Events events_{context_};
    // Streams entered or left. And the times that unregistered streams were asked for an event.
    std::atomic<uint64_t> registrations_{0}, wanted_{0};

    alignas(128) TagClock clock_;
    FreedMemory &memory_;
    std::condition_variable_any unpinned_; // a pin or a context record has ended
    Streams streams_;
    StreamPool common_{Order::anyone};
    StreamPool unordered_{Order::unordered};
    StreamPool cross_context_{Order::unordered};
    Captures captures_;
    List<StreamPool, &StreamPool::incomplete_> incomplete_;
    List<StreamPool, &StreamPool::askable_> askable_;
    List<RecordedEvent, &RecordedEvent::link> spare_events_;
    List<UseRecord, &UseRecord::all> uses_;

    std::list<Marks> marks_;             // in all contexts, oldest first
    uint64_t number_ = 0;                // among the managers of this process
    uint32_t announced_ = 0;             // captures
    uint32_t context_records_ = 0;       // threads that are recording an event on the context
    uint64_t wait_ns_ = longest_wait_ns; // how long wait_bounded() will wait next time on a stream
    const std::chrono::steady_clock::time_point made_ = std::chrono::steady_clock::now();
    uint64_t waited_in_vain_ = 0; // nanoseconds since an event of theirs was complete last
};

} // namespace emm::pool
