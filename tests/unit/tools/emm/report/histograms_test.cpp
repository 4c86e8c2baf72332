#include "report/histograms.h"

#include "catch.h"
#include "recorded.h"

using namespace emm::tool;

TEST_CASE("lifetimes are counted by thirds of powers of ten, from the first bar with blocks") {
    Script script;
    script.alloc(1, 0, 10).alloc(2, 0, 20).alloc(3, 0, 40).alloc(4, 0, 80);
    script.free(1, 1000).free(2, 2999).free(3, 3000);
    const std::vector<Bar> bars = lifetimes_of(script.history(), 3);
    REQUIRE(bars.size() == 2);
    CHECK(bars[0].from == 1000);
    CHECK(bars[0].blocks == 2);
    CHECK(bars[0].bytes == 30);
    CHECK(bars[0].peak_bytes == 30);
    CHECK(bars[1].from == 3000);
    CHECK(bars[1].blocks == 1);
    const Bar unfreed = unfreed_of(script.history(), 3);
    CHECK(unfreed.blocks == 1);
    CHECK(unfreed.bytes == 80);
}

TEST_CASE("what was dropped has no lifetime, and is counted by itself") {
    Script script;
    script.alloc(1, 0, 10).alloc(2, 0, 20).alloc(3, 0, 40).alloc(4, 0, 80).free(1, 1000);
    script.drop(2, 1000, Drop::reset).drop(3, 2000, Drop::context_end);
    const std::vector<Bar> bars = lifetimes_of(script.history(), 3);
    REQUIRE(bars.size() == 1);
    CHECK(bars[0].bytes == 10);
    const Bar dropped = dropped_of(script.history(), 3);
    CHECK(dropped.blocks == 2);
    CHECK(dropped.bytes == 60);
    CHECK(dropped.peak_bytes == 60);
    CHECK(unfreed_of(script.history(), 3).bytes == 80);
}

TEST_CASE("sizes are counted by powers of two, with those that were live at the peak") {
    Script script;
    script.alloc(1, 0, 4).alloc(2, 0, 7).free(1, 1).alloc(3, 2, 16).free(3, 3);
    const std::vector<Bar> bars = sizes_of(script.history(), 3);
    REQUIRE(bars.size() == 3);
    CHECK(bars[0].from == 4);
    CHECK(bars[0].blocks == 2);
    CHECK(bars[0].peak_bytes == 7);
    CHECK(bars[1].blocks == 0);
    CHECK(bars[2].bytes == 16);
}

TEST_CASE("the leading sizes and the largest blocks are those of the peak") {
    Script script;
    script.alloc(1, 0, 10).alloc(2, 0, 10).alloc(3, 0, 15).alloc(4, 0, 99).free(4, 1).alloc(5, 2,
                                                                                            10);
    const std::vector<Bar> sizes = leading_sizes_of(script.history(), 5, 9);
    REQUIRE(sizes.size() == 2);
    CHECK(sizes[0].from == 10);
    CHECK(sizes[0].peak_bytes == 30);
    CHECK(sizes[1].from == 15);
}

TEST_CASE("without freed blocks there is no bar of lifetimes") {
    Script script;
    script.alloc(1, 0, 10);
    CHECK(lifetimes_of(script.history(), 0).empty());
}

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
