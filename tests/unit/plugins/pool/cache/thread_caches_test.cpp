// A search takes threads' slots back from every magazine that has any, and pays nothing for the
// others.
#include "../parts.h"
#include "cache/depot.h"
#include "cache/thread.h"

#include <thread>

using namespace pool_test;

namespace {

const CUstream handle = reinterpret_cast<CUstream>(uintptr_t(0x100));

// As many magazines of the calling thread as streams, each filled once; the first of them.
Magazine &filled_magazines(Parts &parts, uint64_t streams) {
    Magazine *first = nullptr;
    for (uint64_t key = 1; key <= streams; key++) {
        StreamPool &pool = parts.pool_of(key);
        Magazine *magazine = parts.caches.own(handle, pool);
        REQUIRE(magazine);
        parts.add_slab(0, pool);
        parts.caches.refill(*magazine, 0);
        first = first ? first : magazine;
    }
    return *first;
}

// Twice: a magazine is left out once a whole search has found it unused.
void search_twice(Parts &parts) {
    parts.caches.drain_own();
    parts.caches.drain_own();
}

} // namespace

TEST_CASE("a search walks over no magazine that no call has used since the two before") {
    for (const uint64_t streams : {8, 100}) {
        Parts parts;
        Magazine &first = filled_magazines(parts, streams);
        CHECK(parts.walk_length() == streams);
        CHECK(parts.caches.idle_bytes() > 0);
        search_twice(parts);
        CHECK(parts.caches.idle_bytes() == 0);
        CHECK(parts.walk_length() == 0);
        CHECK(parts.caches.own(handle, first.pool) == &first);
        CHECK(parts.walk_length() == 1);
        parts.add_slab(1, first.pool);
        parts.caches.refill(first, 1);
        CHECK(parts.caches.idle_bytes() > 0);
        search_twice(parts);
        CHECK(parts.caches.idle_bytes() == 0);
        CHECK(parts.walk_length() == 0);
    }
}

TEST_CASE("a magazine that is used between two searches, with or without the lock, stays open") {
    Parts parts;
    Magazine &magazine = filled_magazines(parts, 1);
    parts.caches.drain_own();
    parts.caches.take_over(magazine);
    parts.caches.drain_own();
    CHECK(magazine.lock.enter());
    magazine.lock.leave();
    parts.caches.refill(magazine, 0);
    const uint64_t address = magazine.take(512);
    REQUIRE(address);
    parts.memory.slabs.give(*parts.memory.heap.starting_at(address).slot, magazine.pool);
    parts.caches.drain_own(); // finds refilled slots
    parts.caches.drain_own();
    CHECK_FALSE(magazine.lock.enter());
}

TEST_CASE("the owner of a parked magazine gets into it in its next call, with no lock held") {
    Parts parts;
    Magazine &magazine = filled_magazines(parts, 1);
    search_twice(parts);
    CHECK_FALSE(magazine.lock.enter());
    parts.lock.unlock();
    CHECK(parts.caches.enter(magazine));
    magazine.lock.leave();
    CHECK(magazine.lock.enter());
    CHECK(parts.caches.enter(magazine));
    magazine.lock.leave();
    parts.lock.lock();
    CHECK(parts.walk_length() == 1);
}

TEST_CASE("a slow call of the owner makes a search walk over its parked magazine again") {
    Parts parts;
    Magazine &magazine = filled_magazines(parts, 1);
    search_twice(parts);
    parts.caches.take_over(magazine);
    CHECK(parts.walk_length() == 1);
    CHECK(magazine.lock.enter());
    magazine.lock.leave();
}

TEST_CASE("a parked magazine closes for good with its stream, and does not open again") {
    Parts parts;
    Magazine &magazine = filled_magazines(parts, 2);
    search_twice(parts);
    parts.caches.close(&magazine.pool);
    CHECK(magazine.lock.closed_for_good());
    parts.caches.take_over(magazine);
    CHECK(parts.walk_length() == 0);
    parts.lock.unlock();
    CHECK_FALSE(parts.caches.enter(magazine));
    parts.lock.lock();
    CHECK(magazine.lock.closed_for_good());
}

TEST_CASE("other threads' magazines are emptied, then parked once they make no calls") {
    Parts parts;
    std::atomic<int> step{0};
    Magazine *magazine = nullptr;
    bool entered = false;
    const auto await = [&](int wanted) {
        while (step < wanted) {
            std::this_thread::yield();
        }
    };
    std::thread owner([&] {
        {
            const Lock lock(parts.served.mutex);
            magazine = &filled_magazines(parts, 1);
        }
        step = 1;
        await(2);
        entered = parts.caches.enter(*magazine);
        magazine->lock.leave();
        step = 3;
        await(4);
    });
    parts.lock.unlock();
    await(1);
    parts.lock.lock();
    parts.caches.drain_own(); // not its own
    CHECK(parts.caches.idle_bytes() > 0);
    CHECK(parts.caches.drain_all());
    CHECK(parts.caches.idle_bytes() == 0);
    CHECK(parts.walk_length() == 1);
    CHECK_FALSE(parts.caches.drain_all());
    CHECK(parts.walk_length() == 0);
    CHECK_FALSE(parts.caches.drain_all());
    parts.lock.unlock();
    step = 2;
    await(3);
    parts.lock.lock();
    CHECK(entered);
    CHECK(parts.walk_length() == 1);
    parts.lock.unlock();
    step = 4;
    owner.join();
    parts.lock.lock();
    CHECK(parts.walk_length() == 0);
}

TEST_CASE("what comes to lie between threads while their magazines are parked is found") {
    Parts parts;
    StreamPool &common = parts.order.common();
    Magazine *magazine = parts.caches.own(unordered, common);
    REQUIRE(magazine);
    parts.add_slab(0, common);
    parts.caches.refill(*magazine, 0);
    parts.caches.make_room(*magazine, 0);
    const uint64_t address = magazine->take(512);
    REQUIRE(address);
    REQUIRE(magazine->give(parts.memory.heap, address, 512));
    parts.caches.make_room(*magazine, 0); // hands it over
    search_twice(parts);
    CHECK(parts.walk_length() == 0);
    CHECK(parts.caches.quarantined_bytes() == 512);
    parts.caches.complete_batches(parts.order.clock().now());
    CHECK(parts.caches.quarantined_bytes() == 0);
    CHECK(parts.caches.idle_bytes() == 512);
    parts.caches.drain_own();
    CHECK(parts.caches.idle_bytes() == 0);
}

TEST_CASE("an unregistered stream gets a magazine in one of its first calls, and not before") {
    Parts parts;
    Caller caller;
    caller.kind = StreamKind::unregistered;
    caller.stream = handle;
    caller.key = 7;
    StreamPool &pool = parts.order.pool_of(caller);
    uint32_t calls = 1;
    while (calls <= calls_before_a_magazine && !parts.caches.own_for(caller, pool)) {
        calls++;
    }
    CHECK(calls == calls_before_a_magazine);
}

TEST_CASE("blocks between threads lie in the heap again once no thread can take them") {
    Parts parts;
    StreamPool &common = parts.order.common();
    parts.caches.set_limit(uint64_t(8) << 30); // of which a thread may keep a part
    Magazine *magazine = parts.caches.own(unordered, common);
    REQUIRE(magazine);
    for (int i = 0; i < 2; i++) { // the second time shows that the size comes again
        magazine->note_miss(MiB);
    }
    Heap &heap = parts.memory.heap;
    heap.reserve_record();
    Block *block = heap.take(common, MiB);
    REQUIRE(block);
    parts.memory.counts.count_taken(MiB);
    block->loan.begin(MiB);
    REQUIRE(magazine->give_any(heap, block->begin, MiB));
    REQUIRE(parts.caches.hand_over_blocks(*magazine));
    parts.caches.complete_batches(parts.order.clock().now());
    CHECK(parts.caches.largest_kept_block() == MiB);
    CHECK(heap.largest_free() == Parts::bytes - MiB);
    parts.caches.close(&common);
    CHECK(parts.caches.largest_kept_block() == 0);
    CHECK(heap.largest_free() == Parts::bytes);
}

TEST_CASE("a magazine gets as many blocks ahead as it may and as there are, of a size it keeps") {
    Parts parts;
    StreamPool &common = parts.order.common();
    parts.caches.set_limit(uint64_t(8) << 30);
    Magazine *magazine = parts.caches.own(unordered, common);
    REQUIRE(magazine);
    Heap &heap = parts.memory.heap;
    int left = 4;
    const auto take = [&]() -> Block * {
        heap.reserve_record();
        return left-- > 0 ? heap.take(common, MiB) : nullptr;
    };
    CHECK_FALSE(parts.caches.add_blocks(*magazine, MiB, 3 * MiB, take)); // not yet a size it keeps
    for (int i = 0; i < 2; i++) {
        magazine->note_miss(MiB);
    }
    CHECK_FALSE(parts.caches.add_blocks(*magazine, MiB, MiB - 1, take));
    CHECK(left == 4);
    CHECK(parts.caches.add_blocks(*magazine, MiB, 3 * MiB, take));
    CHECK(heap.largest_free() == Parts::bytes - 3 * MiB);
    CHECK(parts.caches.idle_bytes() == 3 * MiB);
    CHECK(parts.caches.add_blocks(*magazine, MiB, UINT64_MAX, take)); // the fourth is the last
    CHECK(heap.largest_free() == Parts::bytes - 4 * MiB);
    parts.caches.unload_blocks(*magazine);
    CHECK(heap.largest_free() == Parts::bytes);
}

TEST_CASE("a size misses again if no other has come between") {
    Parts parts;
    Magazine *magazine = parts.caches.own(unordered, parts.order.common());
    REQUIRE(magazine);
    CHECK_FALSE(magazine->misses_again(MiB));
    CHECK(magazine->misses_again(MiB));
    CHECK_FALSE(magazine->misses_again(2 * MiB));
    CHECK_FALSE(magazine->misses_again(MiB));
}

TEST_CASE("a stream's magazine would keep a large block once its size was missed twice in a row") {
    Parts parts;
    DepotTotals totals;
    Depot depot(totals);
    Magazine magazine(parts.caches, 1, parts.pool_of(1), depot, *Thread::self(),
                      {1 * MiB, 4 * MiB, 0, 0});
    magazine.note_miss(3 * MiB);
    CHECK(magazine.never_holds(3 * MiB));
    magazine.note_miss(3 * MiB);
    CHECK_FALSE(magazine.never_holds(3 * MiB));
}

TEST_CASE("the look at the invariants finds a parked magazine that holds something") {
    Parts parts;
    Magazine &magazine = filled_magazines(parts, 1);
    parts.caches.take_over(magazine);
    const uint64_t address = magazine.take(512);
    REQUIRE(address);
    search_twice(parts);
    CHECK(parts.walk_length() == 0);
    CHECK(parts.caches.fault() == "");
    REQUIRE(magazine.give(parts.memory.heap, address, 512)); // past the magazine's lock
    CHECK(parts.caches.fault() == "a parked magazine holds something");
    REQUIRE(magazine.take(512) == address);
    parts.memory.slabs.give(*parts.memory.heap.starting_at(address).slot, magazine.pool);
}
