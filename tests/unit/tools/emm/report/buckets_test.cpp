#include "catch.h"
#include "recorded.h"
#include "report/buckets.h"

using namespace emm::tool;

TEST_CASE("the peak is the first state with the most bytes") {
    Script script;
    script.alloc(1, 10, 100).alloc(2, 20, 50).free(1, 30).alloc(3, 40, 100).free(2, 50);
    const Peak peak = peak_of(script.history());
    CHECK(peak.bytes == 150);
    CHECK(peak.blocks == 2);
    CHECK(peak.step == 1);
    CHECK(peak.time == 20);
    const Left left = left_of(script.history());
    CHECK(left.bytes == 100);
    CHECK(left.blocks == 1);
}

TEST_CASE("few steps have a bucket each, which says exactly what is live") {
    Script script;
    script.alloc(1, 10, 100).alloc(2, 20, 50).free(1, 30);
    const std::vector<Bucket> buckets = buckets_of(script.history(), 100);
    REQUIRE(buckets.size() == 3);
    CHECK(buckets[1].high == 150);
    CHECK(buckets[2].low == 50);
    CHECK(buckets[2].high == 50);
    CHECK(buckets[2].first_time == 30);
}

TEST_CASE("buckets hold every step once, and none is wide in steps or in time") {
    Script script;
    for (uint64_t i = 0; i < 10000; i++) { // a burst, and then an event now and then
        script.alloc(i, i < 9000 ? i : i * 1000, 1 + i % 7);
    }
    constexpr size_t most = 50;
    const std::vector<Bucket> buckets = buckets_of(script.history(), most);
    CHECK(buckets.size() <= 2 * most + 1);
    uint32_t next = 0;
    uint64_t highest = 0;
    for (const Bucket &bucket : buckets) {
        CHECK(bucket.first_step == next);
        CHECK(bucket.last_step - bucket.first_step < 10000 / most);
        CHECK(bucket.last_time - bucket.first_time <= 9999000 / most);
        CHECK(bucket.low <= bucket.high);
        next = bucket.last_step + 1;
        highest = std::max(highest, bucket.high);
    }
    CHECK(next == 10000);
    CHECK(highest == peak_of(script.history()).bytes);
}

TEST_CASE("a history without steps has no buckets") {
    CHECK(buckets_of(History(), 10).empty());
    CHECK(peak_of(History()).bytes == 0);
}

TEST_CASE("a series has its least, its most and its last value in each bucket") {
    std::vector<Bucket> buckets(2);
    buckets[0].last_step = 2;
    buckets[1].first_step = buckets[1].last_step = 3;
    const std::vector<Extent> extents = extents_of({5, 9, 7, 1}, buckets);
    REQUIRE(extents.size() == 2);
    CHECK(extents[0].low == 5);
    CHECK(extents[0].high == 9);
    CHECK(extents[0].end == 7);
    CHECK(extents[1].high == 1);
}
