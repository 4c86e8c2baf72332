// The work that freed memory waits for, as the manager is told of it.
#include "../parts.h"

#include <chrono>
#include <cstring>

using namespace pool_test;

TEST_CASE("order: an event completes what was freed before it, and nothing later") {
    Parts parts;
    StreamPool &pool = parts.registered(parts.stream());
    CHECK(parts.order.first_incomplete() == nullptr);
    parts.order.mark_dirty(pool, 1 * MiB);
    const uint64_t first = pool.newest;
    CHECK(parts.order.first_incomplete() == &pool);
    CHECK(parts.order.next_incomplete(pool) == nullptr);
    CHECK(parts.order.record_event_if_reachable(parts.lock, pool));
    CHECK(pool.recorded == first);
    parts.order.mark_dirty(pool, 1 * MiB);
    CHECK(pool.newest > first);
    parts.order.record_and_query(parts.lock, pool);
    REQUIRE(parts.noted.completed.size() == 2);
    CHECK(parts.noted.completed[0] == std::pair(&pool, first));
    CHECK(parts.noted.completed[1].second == pool.newest);
    CHECK(pool.completed >= pool.newest);
    CHECK(parts.order.first_incomplete() == nullptr);
}

TEST_CASE("order: a stream that has freed nothing since its event gets no other") {
    Parts parts;
    StreamPool &pool = parts.registered(parts.stream());
    const uint64_t before = parts.calls("cuEventRecord");
    parts.order.record_and_query(parts.lock, pool);
    CHECK(parts.calls("cuEventRecord") == before);
    parts.order.mark_dirty(pool, 512);
    CHECK(parts.order.record_event_if_reachable(parts.lock, pool));
    CHECK(parts.order.record_event_if_reachable(parts.lock, pool));
    CHECK(parts.calls("cuEventRecord") == before + 1);
}

TEST_CASE("order: all registered streams are asked at once, and each once") {
    Parts parts;
    StreamPool *pools[3];
    for (StreamPool *&pool : pools) {
        pool = &parts.registered(parts.stream());
        parts.order.mark_dirty(*pool, 512);
    }
    const uint64_t records = parts.calls("cuEventRecord"), queries = parts.calls("cuEventQuery");
    parts.order.record_and_query_all(parts.lock, false);
    CHECK(parts.calls("cuEventRecord") == records + 3);
    CHECK(parts.calls("cuEventQuery") == queries + 3);
    for (const StreamPool *pool : pools) {
        CHECK(pool->completed >= pool->newest);
    }
    parts.order.record_and_query_all(parts.lock, false);
    CHECK(parts.calls("cuEventQuery") == queries + 3);
}

TEST_CASE("order: a context event is for calls with no stream, and completes every stream") {
    Parts parts;
    StreamPool &pool = parts.pool_of(7); // of which no event can be had
    parts.order.mark_dirty(pool, 512);
    parts.order.mark_dirty(parts.order.unordered(), 512);
    const uint64_t newest = parts.order.unordered().newest;
    const uint64_t before = parts.calls("cuCtxRecordEvent");
    parts.order.record_and_query_all(parts.lock, false);
    CHECK(parts.calls("cuCtxRecordEvent") == before);
    CHECK(parts.order.first_incomplete() == &pool);
    parts.order.record_and_query_all(parts.lock, true);
    CHECK(parts.calls("cuCtxRecordEvent") == before + 1);
    CHECK(parts.order.unordered().completed >= newest);
    CHECK(parts.order.first_incomplete() == nullptr);
    parts.order.record_and_query_all(parts.lock, true);
    CHECK(parts.calls("cuCtxRecordEvent") == before + 1);
}

TEST_CASE("order: a stream waits for an event after the free, and for none before it") {
    Parts parts;
    const CUstream waiting = parts.stream();
    StreamPool &pool = parts.registered(parts.stream());
    Caller caller;
    caller.kind = StreamKind::registered;
    caller.stream = waiting;
    parts.order.mark_dirty(pool, 512);
    CHECK_FALSE(parts.order.wait_on_stream(parts.lock, caller, pool, pool.newest));
    CHECK(parts.order.record_event_if_reachable(parts.lock, pool));
    CHECK(StreamOrder::has_event_for(pool, pool.newest));
    CHECK_FALSE(StreamOrder::has_event_for(pool, pool.newest + 1));
    const uint64_t before = parts.calls("cuStreamWaitEvent");
    CHECK(parts.order.wait_on_stream(parts.lock, caller, pool, pool.newest));
    CHECK(parts.calls("cuStreamWaitEvent") == before + 1);
    CHECK(StreamOrder::has_event_for(pool, pool.newest)); // it still stands for the frees
    parts.order.mark_dirty(pool, 512);
    CHECK_FALSE(parts.order.wait_on_stream(parts.lock, caller, pool, pool.newest));
}

TEST_CASE("order: a stream that captures gets no event, and needs to be asked what it means") {
    Parts parts;
    const CUstream stream = parts.stream();
    StreamPool &pool = parts.registered(stream);
    parts.order.mark_dirty(pool, 512);
    parts.lock.unlock();
    parts.order.begin_capture(stream);
    parts.lock.lock();
    CHECK(parts.order.has_announced_captures());
    CHECK(parts.noted.closed == std::vector<StreamPool *>{&pool});
    CHECK(parts.order.known(stream) == nullptr);
    CHECK_FALSE(parts.order.record_event_if_reachable(parts.lock, pool));
    const uint64_t before = parts.calls("cuCtxRecordEvent");
    parts.order.mark_dirty(parts.order.unordered(), 512);
    parts.order.record_and_query_unordered(parts.lock);
    CHECK(parts.order.wait_for_context(parts.lock));
    CHECK(parts.order.unordered().completed == parts.order.unordered().newest);
    CHECK(parts.calls("cuCtxRecordEvent") == before);
    parts.lock.unlock();
    parts.order.end_capture(stream);
    parts.lock.lock();
    CHECK_FALSE(parts.order.has_announced_captures());
    CHECK(parts.order.known(stream) == &pool);
    CHECK(parts.order.record_event_if_reachable(parts.lock, pool));
}

TEST_CASE("order: a stream that retires gets its last event, and is known no more") {
    Parts parts;
    const CUstream stream = parts.stream();
    StreamPool &pool = parts.registered(stream);
    parts.order.mark_dirty(pool, 512);
    const uint64_t registrations = parts.order.registrations();
    parts.retire(stream);
    CHECK(parts.noted.closed == std::vector<StreamPool *>{&pool});
    CHECK(parts.noted.disbanded.front() == &pool);
    CHECK_FALSE(pool.registered);
    CHECK(pool.recorded == pool.newest);
    CHECK(parts.order.known(stream) == nullptr);
    parts.order.record_and_query_all(parts.lock, false);
    CHECK(pool.completed >= pool.newest);
    CHECK(parts.order.registrations() == registrations);
    parts.stream();
    CHECK(parts.order.registrations() == registrations + 1);
}

TEST_CASE("order: streams that cannot be asked hear of a call for events once each") {
    Parts parts;
    StreamPool &pool = parts.pool_of(7);
    parts.pool_of(8); // a single stream has no others to wait for it
    CHECK(parts.order.has_answered(pool));
    parts.order.call_for_events();
    CHECK(parts.order.calls_for_events() == 1);
    CHECK_FALSE(parts.order.has_answered(pool));
    CHECK(parts.order.answered(pool) == 1); // no event can answer
    parts.order.mark_dirty(pool, 512);
    CHECK(parts.order.answered(pool) == 0);
}

TEST_CASE("order: all work of a context is complete after a wait for it") {
    Parts parts;
    StreamPool &pool = parts.pool_of(7);
    parts.order.mark_dirty(pool, 512);
    CHECK(parts.order.wait_for_context(parts.lock));
    CHECK(parts.order.first_incomplete() == nullptr);
    CHECK(parts.noted.completed.front().first == &pool);
}

TEST_CASE(
    "order: a stream that retires while its capture is announced is remembered until its end") {
    Parts parts;
    const CUstream stream = parts.stream();
    const StreamPool &pool = parts.registered(stream);
    parts.lock.unlock();
    parts.order.begin_capture(stream);
    parts.retire(stream);
    parts.lock.lock();
    CHECK(&parts.pool_of(first_thread_key) != &pool); // nothing else gets its record
    parts.lock.unlock();
    parts.order.end_capture(stream);
    parts.lock.lock();
    CHECK(&parts.pool_of(first_thread_key + 1) == &pool);
}

TEST_CASE("order: waits in vain become short, and long again once there was enough") {
    using namespace std::chrono;
    Parts parts;
    StreamPool &pool = parts.registered(parts.stream());
    parts.order.mark_dirty(pool, 512);
    REQUIRE(cuda().fail("cuEventQuery@1+:600") == CUDA_SUCCESS); // CUDA_ERROR_NOT_READY
    const auto duration = [&](int waits, bool enough) {
        const auto begin = steady_clock::now();
        for (int i = 0; i < waits; i++) {
            parts.order.wait_bounded(parts.lock, pool, [=] { return enough; });
        }
        return nanoseconds(steady_clock::now() - begin);
    };
    const nanoseconds longest(longest_wait_ns);
    CHECK(duration(1, false) >= longest);
    CHECK(duration(20, false) < 10 * longest);
    duration(1, true);
    CHECK(duration(1, false) >= longest);
    cuda().fail("");
}

TEST_CASE("order: where the driver has no events on a context, a wait for it takes their place") {
    emm_host old = host();
    old.driver = [](const char *name, int32_t version) -> emm_function {
        return std::strcmp(name, "cuCtxRecordEvent") == 0 ? nullptr : host().driver(name, version);
    };
    Parts parts(old);
    StreamPool &pool = parts.pool_of(7);
    parts.order.mark_dirty(pool, 512);
    parts.order.mark_dirty(parts.order.unordered(), 512);
    const uint64_t newest = parts.order.unordered().newest;
    const uint64_t before = parts.calls("cuCtxSynchronize");
    parts.order.record_and_query_unordered(parts.lock);
    CHECK(parts.calls("cuCtxSynchronize") == before + 1);
    CHECK(parts.order.unordered().completed >= newest);
    CHECK(parts.order.first_incomplete() == nullptr);
}

TEST_CASE("order: the pool of a capture that ends during a call serves another once that is over") {
    Parts parts;
    const CUstream stream = parts.stream();
    StreamPool *first = nullptr;
    for (int i = 0; i < 2; i++) {
        Caller caller;
        CUgraph graph = nullptr;
        parts.lock.unlock();
        parts.order.begin_capture(stream);
        REQUIRE(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == 0);
        REQUIRE(parts.order.identify(stream, caller) == EMM_OK);
        REQUIRE(parts.order.enter_capture(caller) == EMM_OK);
        parts.lock.lock();
        StreamPool &pool = parts.order.pool_of(caller);
        first = first ? first : &pool;
        CHECK(&pool == first);
        pool.hold();
        REQUIRE(cuda().cuStreamEndCapture(stream, &graph) == 0);
        REQUIRE(cuda().cuGraphDestroy(graph) == 0);
        parts.order.collect_graphs();
        parts.lock.unlock();
        parts.order.end_capture(stream);
        parts.lock.lock();
        parts.order.end_use_of_capture(pool);
    }
}

TEST_CASE(
    "order: a wait with no stream is over if no unordered work was under way, only a stream's") {
    Parts parts;
    StreamPool &pool = parts.registered(parts.stream());
    int questions = 0;
    parts.order.wait_bounded(parts.lock, parts.order.common(), [&] {
        parts.order.mark_dirty(pool, 512);
        CHECK(parts.order.record_event_if_reachable(parts.lock, pool));
        return ++questions == 3;
    });
    CHECK(questions == 1);
}
