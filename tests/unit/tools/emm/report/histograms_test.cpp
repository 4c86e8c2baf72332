#include "catch.h"
#include "recorded.h"
#include "report/histograms.h"

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
    CHECK(largest_at(script.history(), 5, 2) == std::vector<uint32_t>{2, 0});
}

TEST_CASE("without freed blocks there is no bar of lifetimes") {
    Script script;
    script.alloc(1, 0, 10);
    CHECK(lifetimes_of(script.history(), 0).empty());
}
