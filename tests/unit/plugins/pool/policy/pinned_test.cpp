#include "policy/pinned.h"

#include "catch.h"
#include "sizes.h"

using namespace emm::pool;

TEST_CASE("a block is pinned once questions have cost as much as pinning it") {
    CHECK_FALSE(is_worth_pinning(4096, 4666, 0)); // 699,900 ns
    CHECK(is_worth_pinning(4096, 4667, 0));
    CHECK_FALSE(is_worth_pinning(8 * mib, 26'000, 0)); // 3.9 ms
    CHECK(is_worth_pinning(8 * mib, 26'001, 0));
}

TEST_CASE("a size grows eight times at most for fewer questions") {
    CHECK(is_worth_pinning(4096, 1'000'000, 7));
    CHECK_FALSE(is_worth_pinning(4096, 1'000'000, 8));
}

TEST_CASE("eight blocks are pinned at a time, up to 32 MiB, and at least what was asked for") {
    CHECK(pinned_bytes(4096) == 2 * mib);
    CHECK(pinned_bytes(mib) == 8 * mib);
    CHECK(pinned_bytes(2 * mib) == 16 * mib);
    CHECK(pinned_bytes(5 * mib) == 32 * mib);
    CHECK(pinned_bytes(33 * mib) == 34 * mib);
}

TEST_CASE("a thread keeps 1 MiB of pinned blocks of a size, but from 4 to 32 of them") {
    CHECK(blocks_in_a_pinned_bin(4096) == 32);
    CHECK(blocks_in_a_pinned_bin(32 << 10) == 32);
    CHECK(blocks_in_a_pinned_bin(64 << 10) == 16);
    CHECK(blocks_in_a_pinned_bin(256 << 10) == 4);
    CHECK(blocks_in_a_pinned_bin(64 * mib) == 4);
}
