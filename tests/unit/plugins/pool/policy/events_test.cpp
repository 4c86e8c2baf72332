#include "policy/events.h"

#include "catch.h"
#include "sizes.h"

using namespace emm::pool;

TEST_CASE("an unregistered stream gets an event for 2 MiB") {
    CHECK(is_worth_a_stream_event(2 * mib, 100, 1000));
    CHECK_FALSE(is_worth_a_stream_event(2 * mib - 1, 100, 0));
}

TEST_CASE("a stream that frees as much as it allocates gets sixteen early events") {
    CHECK(is_worth_a_stream_event(512, 0, 15));
    CHECK_FALSE(is_worth_a_stream_event(512, 0, 16));
    CHECK_FALSE(is_worth_a_stream_event(512, 1, 0));
}

TEST_CASE("a mark in every context stands for 64 frees or 2 MiB") {
    CHECK(is_worth_a_mark(64, 64));
    CHECK(is_worth_a_mark(1, 2 * mib));
    CHECK_FALSE(is_worth_a_mark(63, 2 * mib - 1));
}

TEST_CASE("for each 32 new streams twice as many are asked") {
    CHECK(streams_to_ask(31) == 0);
    CHECK(streams_to_ask(32) == 64);
}

TEST_CASE("each wait that is broken off halves the next, until one comes to its end") {
    CHECK(next_wait_ns(longest_wait_ns, true) == longest_wait_ns / 2);
    uint64_t wait = longest_wait_ns;
    for (int i = 0; i < 100; i++) {
        wait = next_wait_ns(wait, true);
    }
    CHECK(wait == 97'656); // about the cost of growth
    CHECK(next_wait_ns(wait, false) == longest_wait_ns);
}

TEST_CASE("with no stream, waits in vain take 20 ms and a 20th of the time") {
    constexpr uint64_t ms = 1'000'000;
    CHECK(context_wait_ns(0, 0) == 20 * ms);
    CHECK(context_wait_ns(200 * ms, 0) == 30 * ms);
    CHECK(context_wait_ns(200 * ms, 25 * ms) == 5 * ms);
    CHECK(context_wait_ns(10'000 * ms, 0) == longest_wait_ns);
    CHECK(context_wait_ns(200 * ms, 31 * ms) < ms / 10);    // but never nothing
    CHECK(context_wait_ns(3'600'000 * ms, 999 * ms) == ms); // nor more than a second in all
}

TEST_CASE("a wait asks twenty times before it pauses, then ever longer, up to a millisecond") {
    CHECK(pause_ns(19) == 0);
    CHECK(pause_ns(20) == 20'000);
    CHECK(pause_ns(27) == 20'000);
    CHECK(pause_ns(28) == 40'000);
    CHECK(pause_ns(100) == 1'000'000);
    CHECK(pause_ns(UINT32_MAX) == 1'000'000);
}
