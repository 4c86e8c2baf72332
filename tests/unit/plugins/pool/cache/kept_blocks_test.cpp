#include "cache/kept_blocks.h"

#include "../policy/sizes.h"
#include "catch.h"

#include <vector>

using namespace emm::pool;

namespace {

constexpr uint64_t kib = 1 << 10;

// Blocks of the given sizes, one behind the other.
std::vector<Block> blocks_of(std::initializer_list<uint64_t> sizes) {
    std::vector<Block> blocks(sizes.size());
    uint64_t address = 2 * mib;
    size_t i = 0;
    for (const uint64_t size : sizes) {
        blocks[i].begin = address;
        blocks[i++].size = size;
        address += size;
    }
    return blocks;
}

template <class Store> std::vector<uint64_t> drained(Store &store) {
    std::vector<uint64_t> sizes;
    store.drain([&](const Block &, uint64_t size) { sizes.push_back(size); });
    return sizes;
}

} // namespace

TEST_CASE("a recent block goes out for just its size, the newest of that size first") {
    std::vector<Block> blocks = blocks_of({64 * kib, 128 * kib, 64 * kib});
    RecentBlocks recent(2 * mib);
    for (Block &block : blocks) {
        REQUIRE(recent.give(block));
    }
    CHECK(recent.idle_bytes() == 256 * kib);
    CHECK(recent.take(96 * kib) == nullptr);
    CHECK(recent.take(64 * kib)->block == &blocks[2]);
    CHECK(recent.take(64 * kib)->address == blocks[0].begin);
    CHECK(recent.take(64 * kib) == nullptr);
    CHECK(recent.idle_bytes() == 128 * kib);
    CHECK(recent.take(128 * kib)->block == &blocks[1]);
    CHECK(recent.idle_bytes() == 0);
}

TEST_CASE("a quick look at recent blocks sees the newest alone") {
    std::vector<Block> blocks = blocks_of({64 * kib, 128 * kib});
    RecentBlocks recent(2 * mib);
    CHECK(recent.take_newest(64 * kib) == nullptr);
    REQUIRE((recent.give(blocks[0]) && recent.give(blocks[1])));
    CHECK(recent.take_newest(64 * kib) == nullptr);
    CHECK(recent.take_newest(128 * kib)->block == &blocks[1]);
    CHECK(recent.take_newest(64 * kib)->block == &blocks[0]);
}

TEST_CASE("four recent blocks are kept, none of them larger than the limit, and drained in turn") {
    std::vector<Block> blocks =
        blocks_of({2 * mib, 2 * mib + granule, 64 * kib, 96 * kib, 128 * kib, 64 * kib});
    RecentBlocks recent(2 * mib);
    CHECK(recent.give(blocks[0]));
    CHECK_FALSE(recent.give(blocks[1]));
    CHECK((recent.give(blocks[2]) && recent.give(blocks[3]) && recent.give(blocks[4])));
    CHECK_FALSE(recent.give(blocks[5]));
    CHECK(drained(recent) == std::vector<uint64_t>{2 * mib, 64 * kib, 96 * kib, 128 * kib});
    CHECK(drained(recent).empty());
    CHECK(recent.idle_bytes() == 0);
    CHECK(recent.give(blocks[5]));
}

TEST_CASE("a large size is kept once it was missed twice in a row, until another is missed") {
    std::vector<Block> blocks = blocks_of({8 * mib, 8 * mib, 8 * mib, 8 * mib, 8 * mib, 9 * mib});
    RepeatedBlocks repeated(16 * mib);
    CHECK_FALSE(repeated.give(blocks[0]));
    repeated.note_miss(8 * mib);
    CHECK_FALSE(repeated.accepts(8 * mib));
    repeated.note_miss(9 * mib);
    repeated.note_miss(8 * mib);
    CHECK_FALSE(repeated.accepts(8 * mib));
    repeated.note_miss(8 * mib);
    CHECK(repeated.accepts(8 * mib));
    CHECK(repeated.largest() == 0); // the list is empty
    CHECK_FALSE(repeated.give(blocks[5]));
    for (int i = 0; i < 4; i++) {
        CHECK(repeated.give(blocks[i]));
    }
    CHECK_FALSE(repeated.give(blocks[4]));
    CHECK(repeated.idle_bytes() == 32 * mib);
    CHECK(repeated.largest() == 8 * mib);
    CHECK(repeated.take(9 * mib) == nullptr);
    CHECK(repeated.take(8 * mib) == &blocks[3]);
    CHECK(drained(repeated) == std::vector<uint64_t>(3, 8 * mib));
    CHECK(repeated.take(8 * mib) == nullptr);
    repeated.note_miss(9 * mib);
    CHECK_FALSE(repeated.accepts(8 * mib));
}

TEST_CASE("a size beyond the limit is never kept, and its misses change nothing") {
    RepeatedBlocks repeated(16 * mib);
    repeated.note_miss(8 * mib);
    for (int i = 0; i < 2; i++) {
        repeated.note_miss(16 * mib + granule);
    }
    CHECK_FALSE(repeated.accepts(16 * mib + granule));
    repeated.note_miss(8 * mib);
    CHECK(repeated.accepts(8 * mib));
}
