// The model itself: it complains about each fault, and about nothing else.
#include "model.h"

#include <catch.h>

using namespace model;

namespace {

constexpr uint64_t at = 0x10000, size = 1000;

emm_stats stats_of(uint64_t live, uint64_t count, uint64_t peak, uint64_t allocations,
                   uint64_t frees) {
    emm_stats stats = {};
    stats.live_bytes = live;
    stats.live_count = count;
    stats.peak_live_bytes = peak;
    stats.allocations = allocations;
    stats.frees = frees;
    stats.reserved_bytes = stats.peak_reserved_bytes = 1 << 20;
    return stats;
}

} // namespace

TEST_CASE("the model refuses an allocation that overlaps live memory, of any context") {
    Model model({});
    model.allocated(0, Kind::device, at, size);
    CHECK_THROWS_AS(model.allocated(1, Kind::managed, at, 1), Wrong);
    CHECK_THROWS_AS(model.allocated(0, Kind::pinned, at + 768, size), Wrong);
    CHECK_THROWS_AS(model.allocated(0, Kind::device, at - 256, 257), Wrong);
    model.allocated(0, Kind::device, at - 256, 256);
    model.allocated(0, Kind::device, at + 1024, size);
    model.freed(at);
    model.allocated(1, Kind::device, at, 1024);
}

TEST_CASE("the model refuses an address that is 0 or not aligned, but for the caller's memory") {
    Model model({});
    CHECK_THROWS_AS(model.allocated(0, Kind::device, 0, size), Wrong);
    CHECK_THROWS_AS(model.allocated(0, Kind::pinned, at + 128, size), Wrong);
    model.allocated(0, Kind::registered, at + 128, size);
}

TEST_CASE("the model keeps what was freed in a capture until the last of its graphs is gone") {
    Model model({});
    model.allocated(0, Kind::device, at, size);
    model.life_begins(7);
    model.freed_in_capture(at, 7);
    CHECK(model.live_around(at) == nullptr);
    model.life_begins(7); // an executable graph
    model.life_ends(7);
    CHECK_THROWS_AS(model.allocated(0, Kind::device, at, size), Wrong);
    CHECK_FALSE(model.is_empty(0));
    model.life_ends(7);
    CHECK(model.is_empty(0));
    model.allocated(0, Kind::device, at, size);
}

TEST_CASE("what was freed in a capture may go out again in the same capture alone") {
    Model model({});
    model.allocated(0, Kind::device, at, size);
    model.life_begins(7);
    model.life_begins(8);
    model.freed_in_capture(at, 7);
    CHECK_THROWS_AS(model.allocated(0, Kind::device, at, size, 8), Wrong);
    model.allocated(0, Kind::device, at, size / 2, 7);
    CHECK(model.is_free(at + size / 2, at + size / 2)); // no byte
    CHECK_FALSE(model.is_free(at + size / 2, at + size));
    model.freed(at);
    CHECK_THROWS_AS(model.allocated(0, Kind::device, at, size), Wrong);
}

TEST_CASE("the model knows live memory by any address in it") {
    Model model({});
    model.allocated(2, Kind::device, at, size);
    REQUIRE(model.live_around(at + size - 1));
    CHECK(model.live_around(at + size - 1)->context == 2);
    CHECK(model.live_around(at + size) == nullptr);
    CHECK(model.live_around(at - 1) == nullptr);
}

TEST_CASE("the model tells statistics that are wrong") {
    Model model({});
    model.allocated(0, Kind::device, at, size);
    model.allocated(0, Kind::device, at + 1024, 24);
    model.freed(at);
    model.judge(0, stats_of(24, 1, 1024, 2, 1));
    CHECK_THROWS_AS(model.judge(0, stats_of(25, 1, 1024, 2, 1)), Wrong);
    CHECK_THROWS_AS(model.judge(0, stats_of(24, 2, 1024, 2, 1)), Wrong);
    CHECK_THROWS_AS(model.judge(0, stats_of(24, 1, 1023, 2, 1)), Wrong);
    CHECK_THROWS_AS(model.judge(0, stats_of(24, 1, 1024, 3, 1)), Wrong);
    CHECK_THROWS_AS(model.judge(0, stats_of(24, 1, 1024, 2, 0)), Wrong);
    CHECK_THROWS_AS(model.judge(1, stats_of(24, 1, 1024, 2, 1)), Wrong);
}

TEST_CASE("an upper bound of the peak is good, unless the plugin promises the peak itself") {
    for (const bool exact : {false, true}) {
        Promises promises;
        promises.exact_peak = exact;
        Model model(promises);
        model.allocated(0, Kind::device, at, size);
        const emm_stats stats = stats_of(size, 1, size + 1, 1, 0);
        if (exact) {
            CHECK_THROWS_AS(model.judge(0, stats), Wrong);
        } else {
            model.judge(0, stats);
        }
    }
}

TEST_CASE("the model tells sums that do not add up, and memory beyond the limit") {
    Promises promises;
    promises.most = 1 << 20;
    Model model(promises);
    emm_stats stats = stats_of(0, 0, 0, 0, 0);
    stats.cached_bytes = 1 << 20;
    model.judge(0, stats);
    stats.pending_bytes = 1;
    CHECK_THROWS_AS(model.judge(0, stats), Wrong);
    stats.reserved_bytes = stats.peak_reserved_bytes = (1 << 20) + 1;
    CHECK_THROWS_AS(model.judge(0, stats), Wrong);
}

TEST_CASE("the model tells an account above its bound, and a refusal where there was room") {
    Account account{100, 100, 100};
    account.judge();
    account.judge_refusal(1, 1);
    account.used = 101;
    CHECK_THROWS_AS(account.judge(), Wrong);
    account.excess = 1;
    account.judge();
    account.used = 99;
    CHECK_THROWS_AS(account.judge(), Wrong); // less than the reserved bytes
    CHECK_THROWS_AS(account.judge_refusal(1, 1), Wrong);
    account.judge_refusal(1, 2);
    account.bound = 0;
    account.judge_refusal(1, 1);
}

TEST_CASE("the model tells memory that is returned in a deferred section") {
    Model model({});
    emm_stats stats = stats_of(0, 0, 0, 0, 0);
    model.section_begins(0);
    model.judge(0, stats);
    stats.reserved_bytes /= 2;
    CHECK_THROWS_AS(model.judge(0, stats), Wrong);
    model.section_ends(0);
    model.judge(0, stats);
}

TEST_CASE("a failed request may be counted more than once only where emm asks again") {
    Model model({});
    model.failed(0, false);
    emm_stats stats = stats_of(0, 0, 0, 0, 0);
    CHECK_THROWS_AS(model.judge(0, stats), Wrong);
    stats.failures = 2;
    CHECK_THROWS_AS(model.judge(0, stats), Wrong);
    model.failed(0, true);
    model.judge(0, stats);
}

TEST_CASE("what happened at the same time may be counted or not, once") {
    Promises promises;
    promises.exact_peak = true;
    Model model(promises);
    model.allocated(0, Kind::device, at, size);
    model.blurred(0, 1, 24);
    CHECK_THROWS_AS(model.judge(0, stats_of(size, 1, size + 24, 1, 2)), Wrong);
    model.blurred(0, 1, 24);
    model.judge(0, stats_of(size, 1, size + 24, 1, 1));
    model.judge(0, stats_of(size, 1, size + 24, 1, 1));
    CHECK_THROWS_AS(model.judge(0, stats_of(size, 1, size + 24, 1, 0)), Wrong);
    CHECK_THROWS_AS(model.judge(0, stats_of(size, 1, size + 25, 1, 1)), Wrong);
}

TEST_CASE("a reset leaves the counts of calls and no live memory") {
    Model model({});
    model.allocated(0, Kind::device, at, size);
    model.allocated(0, Kind::pinned, 2 * at, size);
    model.reset(0);
    model.judge(0, stats_of(0, 0, size, 1, 0));
    CHECK(model.is_empty(0));
}

TEST_CASE("a reset of the peaks has them begin with what is live") {
    Promises promises;
    promises.exact_peak = true;
    Model model(promises);
    for (const uint64_t ptr : {at, 2 * at}) {
        model.allocated(0, Kind::device, ptr, size);
    }
    model.freed(at);
    model.judge(0, stats_of(size, 1, 2 * size, 2, 1));
    model.peaks_reset(0);
    CHECK_THROWS_AS(model.judge(0, stats_of(size, 1, 2 * size, 2, 1)), Wrong);
    emm_stats stats = stats_of(size, 1, size, 2, 1);
    stats.reserved_bytes = stats.peak_reserved_bytes = size;
    model.judge(0, stats);
}

TEST_CASE("the model finds paused memory for what is live, and no more") {
    Model model({});
    model.allocated(0, Kind::device, at, size);
    emm_stats stats = stats_of(size, 1, size, 1, 0);
    stats.reserved_bytes = 0;
    stats.paused_bytes = size;
    model.judge(0, stats);
    stats.paused_bytes = size - 1;
    CHECK_THROWS_AS(model.judge(0, stats), Wrong);
}
