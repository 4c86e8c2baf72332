#include "order/streams.h"

#include "catch.h"
#include "order/caller.h"

#include <thread>

using namespace emm::pool;

namespace {

const CUstream first_handle = reinterpret_cast<CUstream>(uintptr_t(0x100));
const CUstream second_handle = reinterpret_cast<CUstream>(uintptr_t(0x200));

} // namespace

TEST_CASE("a stream is found by its id, and by its handle while it is registered") {
    Streams streams;
    CHECK(streams.find(7) == nullptr);
    StreamPool &pool = streams.find_or_make(7);
    CHECK(pool.key() == 7);
    CHECK(streams.find(7) == &pool);
    CHECK(&streams.find_or_make(7) == &pool);
    CHECK(streams.find_registered(first_handle) == nullptr);
    streams.enter(pool, first_handle);
    CHECK(pool.registered);
    CHECK(streams.find_registered(first_handle) == &pool);
    CHECK(streams.find_registered(second_handle) == nullptr);
    streams.leave(pool);
    CHECK_FALSE(pool.registered);
    CHECK(streams.find_registered(first_handle) == nullptr);
    CHECK(streams.find(7) == &pool);
}

TEST_CASE("a handle that another stream has by now stays with that when the first one leaves") {
    Streams streams;
    StreamPool &old = streams.find_or_make(1), &young = streams.find_or_make(2);
    streams.enter(old, first_handle);
    streams.enter(young, first_handle);
    streams.leave(old);
    CHECK(streams.find_registered(first_handle) == &young);
}

TEST_CASE("streams count as met for the first time once each, until they are counted anew") {
    Streams streams;
    streams.find_or_make(1);
    streams.find_or_make(2);
    streams.find_or_make(1);
    CHECK(streams.made_since_asked() == 2);
    streams.reset_made_count();
    CHECK(streams.made_since_asked() == 0);
    streams.find_or_make(2);
    CHECK(streams.made_since_asked() == 0);
}

TEST_CASE("two streams are several, and so is one beside frees on the legacy stream") {
    Streams streams;
    CHECK_FALSE(streams.has_several());
    streams.find_or_make(1);
    CHECK_FALSE(streams.has_several());
    streams.legacy.newest = 1;
    CHECK(streams.has_several());
    streams.legacy.newest = 0;
    streams.find_or_make(2);
    CHECK(streams.has_several());
}

TEST_CASE("a forgotten stream's record serves the next one, and remembers nothing") {
    Streams streams;
    StreamPool &pool = streams.find_or_make(1);
    pool.newest = pool.recorded = 5;
    pool.count_slow_call();
    streams.forget(pool);
    CHECK(streams.find(1) == nullptr);
    StreamPool &next = streams.find_or_make(2);
    CHECK(&next == &pool);
    CHECK((next.key() == 2 && next.newest == 0 && next.recorded == 0));
    CHECK(next.count_slow_call() == 1);
    CHECK(&streams.find_or_make(3) != &next);
}

TEST_CASE("all streams are forgotten but the registered ones") {
    Streams streams;
    StreamPool &registered = streams.find_or_make(1);
    streams.enter(registered, first_handle);
    streams.find_or_make(2);
    streams.find_or_make(3);
    streams.forget_unregistered();
    CHECK(streams.find(1) == &registered);
    CHECK(streams.find_registered(first_handle) == &registered);
    CHECK((streams.find(2) == nullptr && streams.find(3) == nullptr));
    CHECK(streams.legacy.registered);
    int count = 0;
    streams.each([&](StreamPool &) { count++; });
    CHECK(count == 1);
}

TEST_CASE("a thread has one key, which is no stream's id and no other thread's") {
    const uint64_t own = thread_key();
    CHECK(own >= first_thread_key);
    CHECK(thread_key() == own);
    uint64_t others = 0;
    std::thread([&] { others = thread_key(); }).join();
    CHECK(others >= first_thread_key);
    CHECK(others != own);
}
