#include "cache/block_depot.h"

#include "../policy/sizes.h"
#include "cache/unordered_blocks.h"
#include "catch.h"

#include <vector>

using namespace emm::pool;

namespace {

// A heap of one segment, its free pool of unordered frees, and a depot for it.
struct World {
    explicit World(uint64_t most = UINT64_MAX) : depot(heap, most) {
        heap.prepare(segment);
        heap.add(segment);
    }
    Block *take(uint64_t bytes) {
        heap.reserve_record();
        return heap.take(common, bytes);
    }
    // Frees the block, with the tag of that moment.
    uint64_t put(Block &block) {
        REQUIRE(depot.put(block));
        return block.tag;
    }

    FreePool common{Order::anyone}, unordered{Order::unordered};
    TagClock clock;
    Heap heap{common, clock};
    Segment segment{0x7000'0000'0000, 32 * mib, 0x7000'0000'0000, 32 * mib};
    BlockDepot depot;
};

} // namespace

TEST_CASE("a block is taken again whole, and only once what it waits for is complete") {
    World world;
    Block *const block = world.take(mib);
    const uint64_t tag = world.put(*block);
    CHECK(world.depot.take(mib) == nullptr);
    world.depot.complete(tag - 1, true);
    CHECK(world.depot.take(mib) == nullptr);
    CHECK(world.depot.waiting_bytes() == mib);
    world.depot.complete(tag, true);
    CHECK(world.depot.waiting_bytes() == 0);
    CHECK(world.depot.largest_complete() == mib);
    CHECK(world.depot.take(mib - granule) == nullptr);
    CHECK(world.depot.all_idle());
    CHECK(world.depot.take(mib) == block);
    CHECK(world.depot.take(mib) == nullptr);
    CHECK(world.depot.largest_complete() == 0);
    CHECK(world.heap.fault() == "");
}

TEST_CASE("what is freed after an event waits for the next one") {
    World world;
    Block *const one = world.take(mib), *const other = world.take(mib);
    const uint64_t before = world.put(*one);
    world.clock.end_tag();
    world.put(*other);
    world.depot.complete(before, true);
    CHECK(world.depot.take(mib) == one);
    CHECK(world.depot.take(mib) == nullptr);
    CHECK(world.depot.waiting_count() == 1);
}

TEST_CASE("the heap has back what is complete, joined, and what is not wanted as it is") {
    for (const bool keep : {true, false}) {
        World world;
        std::vector<Block *> blocks;
        for (int i = 0; i < 32; i++) {
            blocks.push_back(world.take(mib));
        }
        uint64_t tag = 0;
        for (Block *block : blocks) {
            tag = world.put(*block);
        }
        CHECK(world.heap.largest_complete() == 0);
        world.depot.complete(tag, keep);
        CHECK(world.depot.give_complete() == keep);
        CHECK_FALSE(world.depot.give_complete());
        CHECK(world.heap.largest_complete() == 32 * mib);
        CHECK(world.heap.fault() == "");
    }
}

TEST_CASE("the heap has back what waits, as freed now") {
    World world;
    world.put(*world.take(mib));
    CHECK(world.depot.give_waiting(world.unordered) == mib);
    CHECK(world.depot.give_waiting(world.unordered) == 0);
    CHECK(world.heap.quarantined() == mib);
    world.heap.complete(world.unordered, world.heap.now());
    CHECK(world.heap.largest_complete() == 32 * mib);
    CHECK(world.heap.fault() == "");
}

TEST_CASE(
    "a depot holds no more bytes than it may, and no more than eight sizes of complete ones") {
    World world(4 * mib);
    uint64_t tag = 0;
    for (int i = 0; i < 4; i++) {
        tag = world.put(*world.take(mib));
    }
    Block *const fifth = world.take(mib);
    CHECK_FALSE(world.depot.put(*fifth));
    CHECK(fifth->state == State::live);
    world.depot.complete(tag, true);
    CHECK_FALSE(world.depot.put(*fifth)); // complete ones count as well
    world.depot.give_complete();
    for (uint64_t i = 1; i <= 9; i++) {
        tag = world.put(*world.take(i * granule));
    }
    world.depot.complete(tag, true);
    CHECK(world.depot.take(8 * granule) != nullptr);
    CHECK(world.depot.take(9 * granule) == nullptr);
    CHECK(world.depot.all_idle());
}

TEST_CASE("blocks that wait and complete ones count together, in number and in bytes") {
    World world, tight(4 * mib);
    uint64_t tag = 0;
    for (int i = 0; i < 256; i++) {
        tag = world.put(*world.take(granule));
    }
    world.depot.complete(tag, true);
    for (int i = 0; i < 256; i++) {
        world.put(*world.take(granule));
    }
    CHECK_FALSE(world.depot.put(*world.take(granule)));
    tight.depot.complete(tight.put(*tight.take(mib)), true);
    tight.put(*tight.take(2 * mib));
    CHECK_FALSE(tight.depot.put(*tight.take(2 * mib)));
    CHECK(tight.depot.put(*tight.take(mib)));
}

TEST_CASE("the heap has back what is complete of every size, were it one block alone") {
    World world;
    world.depot.complete(world.put(*world.take(mib)), true);
    CHECK(world.depot.give_complete());
    world.put(*world.take(mib));
    world.depot.complete(world.put(*world.take(2 * mib)), true);
    CHECK(world.depot.give_complete());
    CHECK(world.heap.largest_complete() == 32 * mib);
    CHECK(world.depot.take(2 * mib) == nullptr);
}

TEST_CASE("a depot whose memory has gone elsewhere counts nothing") {
    World world;
    world.depot.complete(world.put(*world.take(mib)), true);
    world.put(*world.take(mib));
    world.depot.forget_memory();
    CHECK((world.depot.waiting_bytes() == 0 && world.depot.waiting_count() == 0));
    CHECK_FALSE(world.depot.give_complete());
    CHECK(world.depot.largest_complete() == 0);
}

TEST_CASE("a block in the depot that is in use, or of another size than was counted, is found") {
    World world;
    Block &block = *world.take(mib);
    world.put(block);
    REQUIRE(world.depot.all_idle());
    block.state = State::live;
    CHECK_FALSE(world.depot.all_idle());
    block.state = State::waiting;
    block.loan.begin(1);
    CHECK_FALSE(world.depot.all_idle());
    block.loan.end();
    block.uses = reinterpret_cast<UseRecord *>(&world);
    CHECK_FALSE(world.depot.all_idle());
    block.uses = nullptr;
    block.capture = reinterpret_cast<Capture *>(&world);
    CHECK_FALSE(world.depot.all_idle());
    block.capture = nullptr;
    block.size += granule;
    CHECK_FALSE(world.depot.all_idle());
    block.size -= granule;
    CHECK(world.depot.all_idle());
}

TEST_CASE("a size that is missed twice in a while has its blocks taken back, up to a batch") {
    World world;
    UnorderedBlocks kept(4 * mib, 3 * mib);
    CHECK_FALSE(kept.has_room_for(mib));
    kept.note_miss(mib);
    CHECK_FALSE(kept.has_room_for(mib));
    kept.note_miss(2 * mib);
    kept.note_miss(mib);
    CHECK_FALSE(kept.has_room_for(2 * mib));
    for (int i = 0; i < 3; i++) {
        REQUIRE(kept.give(*world.take(mib)));
    }
    CHECK_FALSE(kept.has_room_for(mib));
    CHECK(kept.freed_bytes.get() == 3 * mib);
    CHECK(kept.take(mib) == nullptr); // those wait
    CHECK(kept.most_of(mib) == 3);
    CHECK(kept.most_of(granule) == most_frees_a_batch);
}
