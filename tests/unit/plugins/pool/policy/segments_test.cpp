#include "policy/segments.h"

#include "catch.h"
#include "sizes.h"

using namespace emm::pool;

namespace {

SegmentUse in_segments(uint64_t claimed, uint64_t most) {
    SegmentUse use;
    use.claimed = use.peak = claimed;
    use.taken = use.most = most;
    return use;
}

} // namespace

TEST_CASE("large requests share segments of a sixteenth of all, up to 32 MiB") {
    CHECK(segment_bytes(2 * mib, Zone::large, 0, in_segments(160 * mib, 0)) == 10 * mib);
    CHECK(segment_bytes(2 * mib, Zone::large, 0, in_segments(4 * gib, 0)) == 32 * mib);
    CHECK(segment_bytes(2 * mib, Zone::large, 0, in_segments(0, 0)) == 2 * mib);
}

TEST_CASE("small requests share segments of a 32nd of the small ones") {
    SegmentUse use = in_segments(4 * gib, 0);
    use.small = 128 * mib;
    CHECK(segment_bytes(4096, Zone::small, 0, use) == 4 * mib);
    use.small = 128 * mib + 32;
    CHECK(segment_bytes(4096, Zone::small, 0, use) == 6 * mib);
    use.small = 0;
    CHECK(segment_bytes(4096, Zone::small, 0, use) == 2 * mib);
}

TEST_CASE("a request larger than its share gets its measure in whole granules") {
    CHECK(segment_bytes(33 * mib, Zone::large, 0, in_segments(4 * gib, 0)) == 34 * mib);
    CHECK(segment_bytes(4 * mib, Zone::dedicated, 0, in_segments(4 * gib, 0)) == 4 * mib);
}

TEST_CASE("the program's least segment takes the place of the share, except for dedicated ones") {
    CHECK(segment_bytes(2 * mib, Zone::large, 128 * mib, in_segments(4 * gib, 0)) == 128 * mib);
    CHECK(segment_bytes(4096, Zone::small, 4 * mib, in_segments(4 * gib, 0)) == 4 * mib);
    CHECK(segment_bytes(256 * mib, Zone::large, 128 * mib, in_segments(4 * gib, 0)) == 256 * mib);
    CHECK(segment_bytes(4 * mib, Zone::dedicated, 128 * mib, in_segments(4 * gib, 0)) == 4 * mib);
}

TEST_CASE("idle segments go back for what is beyond the peak") {
    SegmentUse use = in_segments(gib, gib / 2);
    CHECK(bytes_to_exchange(6 * mib, use) == 6 * mib);
    use.claimed -= 4 * mib;
    CHECK(bytes_to_exchange(6 * mib, use) == 2 * mib);
    CHECK(bytes_to_exchange(4 * mib, use) == 0);
}

TEST_CASE("no segment goes back within a 64th more than was ever needed") {
    const SegmentUse use = in_segments(gib, gib);
    CHECK(bytes_to_exchange(gib / 64, use) == 0);
    CHECK(bytes_to_exchange(gib / 64 + 2 * mib, use) == 2 * mib);
}

TEST_CASE("while there is room to grow no block is cut for a sixteenth of it") {
    const SegmentUse use = in_segments(gib, gib);
    CHECK(cut_limit(2 * mib, gib / 64, true, use) == 32 * mib);
    CHECK(cut_limit(2 * mib, gib / 64 + 2 * mib, true, use) == UINT64_MAX);
}

TEST_CASE("a huge request takes no block that is larger by more than a quarter if much is idle") {
    const uint64_t bytes = 128 * mib;
    CHECK(cut_limit(bytes, bytes, true, in_segments(gib + gib / 8 + 1, gib)) == 160 * mib);
    CHECK(cut_limit(bytes, bytes, true, in_segments(gib + gib / 8, gib)) == UINT64_MAX);
    CHECK(cut_limit(64 * mib, bytes, true, in_segments(gib, gib / 2)) == 80 * mib);
    CHECK(cut_limit(64 * mib - 1, bytes, true, in_segments(gib + gib / 4, gib)) == UINT64_MAX);
}

TEST_CASE("a request that is little of all, or cannot exchange segments, takes any block") {
    CHECK(cut_limit(128 * mib, 128 * mib, true, in_segments(2 * gib, gib)) == 160 * mib);
    CHECK(cut_limit(128 * mib, 128 * mib, true, in_segments(2 * gib + 16, gib)) == UINT64_MAX);
    CHECK(cut_limit(128 * mib, 128 * mib, false, in_segments(2 * gib, gib)) == UINT64_MAX);
}

TEST_CASE("what was taken at the beginning is no excess") {
    SegmentUse use = in_segments(2 * gib, gib);
    use.initial = 2 * gib;
    CHECK(cut_limit(128 * mib, 128 * mib, true, use) == UINT64_MAX);
}

TEST_CASE("small requests grow first while their segments are a 64th of all") {
    SegmentUse use = in_segments(gib, gib);
    use.small = 12 * mib;
    CHECK(small_grows_first(4 * mib, use));
    CHECK_FALSE(small_grows_first(6 * mib, use));
}

TEST_CASE("small requests grow first where as much was held before and a quarter is not needed") {
    SegmentUse use = in_segments(gib, gib);
    use.small = 512 * mib;
    use.peak = gib + 4 * mib;
    use.taken = 768 * mib;
    CHECK(small_grows_first(4 * mib, use));
    CHECK_FALSE(small_grows_first(6 * mib, use));
    use.taken++;
    CHECK_FALSE(small_grows_first(4 * mib, use));
}
