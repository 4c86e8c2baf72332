#include "cache/depot.h"

#include "catch.h"

#include <vector>

using namespace emm::pool;

namespace {

constexpr unsigned large_class = slab_classes - 1; // slots of 32 KiB
constexpr unsigned small_class = 0;                // of 512 bytes

// Has room for 64, and slots of consecutive addresses from `first` on.
struct FilledBin : Bin {
    explicit FilledBin(uint32_t slot_count, uint64_t first = 1) {
        limit = most_slots_a_batch;
        slots = std::make_unique<SlotAt[]>(limit);
        for (uint32_t i = 0; i < slot_count; i++) {
            push({first + i, nullptr});
        }
    }
};

std::vector<uint64_t> addresses(const Bin &bin) {
    std::vector<uint64_t> found;
    for (uint32_t i = 0; i < bin.count.get(); i++) {
        found.push_back(bin.slots[i].address);
    }
    return found;
}

struct DepotWorld {
    DepotTotals totals;
    Depot depot{totals};
    SpareBatches spares;

    ~DepotWorld() {
        depot.clear([](const Batch &) {}, spares);
    }
};

} // namespace

TEST_CASE("the oldest slots go to the depot, and fill an empty bin from there") {
    DepotWorld world;
    FilledBin from(4);
    REQUIRE(world.depot.unload(from, small_class, 3, world.spares));
    CHECK(addresses(from) == std::vector<uint64_t>{4});
    CHECK(world.depot.waiting(small_class) == 3);
    CHECK(world.totals.bytes == 3 * 512);
    FilledBin full(1), empty(0);
    CHECK_FALSE(world.depot.swap_in(full, small_class));
    CHECK_FALSE(world.depot.swap_in(empty, small_class + 1));
    CHECK(world.depot.swap_in(empty, small_class));
    CHECK(addresses(empty) == std::vector<uint64_t>{1, 2, 3});
    CHECK(world.depot.waiting(small_class) == 0);
    CHECK(world.totals.bytes == 0);
}

TEST_CASE("a batch that is more than a bin's limit stays in the depot") {
    DepotWorld world;
    FilledBin from(5), to(0);
    REQUIRE(world.depot.unload(from, small_class, 5, world.spares));
    to.limit = 4;
    CHECK_FALSE(world.depot.swap_in(to, small_class));
    to.limit = 5;
    CHECK(world.depot.swap_in(to, small_class));
}

TEST_CASE("a swap out takes an empty batch that a swap in has left, and makes none") {
    DepotWorld world;
    FilledBin bin(2);
    CHECK_FALSE(world.depot.swap_out(bin, small_class, 1));
    REQUIRE(world.depot.unload(bin, small_class, 2, world.spares));
    REQUIRE(world.depot.swap_in(bin, small_class));
    CHECK(world.depot.swap_out(bin, small_class, 1));
    CHECK(addresses(bin) == std::vector<uint64_t>{2});
    CHECK_FALSE(world.depot.swap_out(bin, small_class, 1));
}

TEST_CASE("a depot holds 1 MiB of slots, of all sizes together") {
    DepotWorld world;
    for (int i = 0; i < 8; i++) { // 31 of 32 KiB
        FilledBin bin(4);
        REQUIRE(world.depot.unload(bin, large_class, i < 7 ? 4 : 3, world.spares));
    }
    FilledBin bin(64), other(1);
    REQUIRE(world.depot.unload(bin, small_class, 63, world.spares));
    CHECK_FALSE(world.depot.unload(other, large_class, 1, world.spares));
    CHECK(other.count.get() == 1);
    CHECK(world.depot.unload(other, small_class, 1, world.spares));
    CHECK(world.totals.bytes == 1 << 20);
    CHECK_FALSE(world.depot.unload(bin, small_class, 1, world.spares));
}

TEST_CASE("a swap out finds a full depot full, and what has left it no longer counts") {
    DepotWorld world;
    for (int i = 0; i < 20; i++) {
        FilledBin bin(4), empty(0);
        REQUIRE(world.depot.unload(bin, large_class, 4, world.spares));
        REQUIRE(world.depot.swap_in(empty, large_class));
    }
    FilledBin small_slot(1), none(0), slots(4);
    REQUIRE(world.depot.unload(small_slot, small_class, 1, world.spares));
    for (int i = 0; i < 8; i++) { // 31 of 32 KiB
        FilledBin bin(4);
        REQUIRE(world.depot.unload(bin, large_class, i < 7 ? 4 : 3, world.spares));
    }
    REQUIRE(world.depot.swap_in(none, small_class)); // leaves an empty batch
    CHECK_FALSE(world.depot.swap_out(slots, large_class, 2));
    CHECK(world.depot.swap_out(slots, large_class, 1));
}

TEST_CASE("while a thread looks for whole blocks a depot takes nothing, but gives what it has") {
    DepotWorld world;
    FilledBin bin(2);
    REQUIRE(world.depot.unload(bin, small_class, 1, world.spares));
    Batch *batch = world.depot.make_batch(bin, small_class, 1, world.spares);
    REQUIRE(batch);
    world.totals.searches = 1;
    FilledBin more(1), empty(0);
    CHECK_FALSE(world.depot.unload(more, small_class, 1, world.spares));
    CHECK_FALSE(world.depot.put(*batch));
    CHECK(world.depot.swap_in(empty, small_class));
    CHECK_FALSE(world.depot.swap_out(empty, small_class, 1));
    world.totals.searches = 0;
    CHECK(world.depot.put(*batch));
    CHECK(world.depot.waiting(small_class) == 1);
}

TEST_CASE("a cleared depot has handed over each slot once, and counts no bytes") {
    DepotWorld world;
    FilledBin a(3), b(2, 100);
    REQUIRE((world.depot.unload(a, small_class, 3, world.spares) &&
             world.depot.unload(b, large_class, 2, world.spares)));
    std::vector<uint64_t> found;
    world.depot.clear(
        [&](const Batch &batch) {
            for (uint32_t i = 0; i < batch.count; i++) {
                found.push_back(batch.slots[i].address);
            }
        },
        world.spares);
    CHECK(found == std::vector<uint64_t>{1, 2, 3, 100, 101});
    CHECK(world.totals.bytes == 0);
    CHECK(world.depot.waiting(small_class) == 0);
}

TEST_CASE("batches leave a queue in the order that they came in") {
    Batch a, b, c;
    BatchQueue queue;
    queue.push(a);
    queue.push(b);
    CHECK(queue.pop() == &a);
    queue.push(c);
    CHECK(queue.pop() == &b);
    CHECK(queue.pop() == &c);
    CHECK((queue.first == nullptr && queue.last == nullptr));
}
