#include "serve/allocations.h"

#include "catch.h"
#include "parts/threads.h"

#include <set>

using namespace emm::run;

namespace {

emm_context *context_number(uintptr_t number) {
    return reinterpret_cast<emm_context *>(number);
}

Allocation made_at(uint64_t address, uint64_t size = 256, Kind kind = Kind::device,
                   uintptr_t context = 1) {
    Allocation made;
    made.address = address;
    made.size = size;
    made.kind = kind;
    made.context = context_number(context);
    return made;
}

} // namespace

TEST_CASE("an allocation is found by its address until it is taken") {
    Allocations allocations;
    REQUIRE(allocations.insert(made_at(0x7f0000000000, 1000)));
    CHECK(allocations.find(0x7f0000000000).size == 1000);
    CHECK(allocations.find(0x7f0000000100).address == 0);
    CHECK(allocations.take(0x7f0000000000, on_device).size == 1000);
    CHECK(allocations.find(0x7f0000000000).address == 0);
    CHECK(allocations.take(0x7f0000000000, on_device).address == 0);
}

TEST_CASE("address 0 is never an allocation") {
    Allocations allocations;
    CHECK(allocations.find(0).address == 0);
    CHECK(allocations.take(0, on_device).address == 0);
}

TEST_CASE("memory of another kind is not taken") {
    Allocations allocations;
    REQUIRE(allocations.insert(made_at(4096, 256, Kind::pinned)));
    CHECK(allocations.take(4096, on_device).address == 0);
    CHECK(allocations.take(4096, uint32_t(Kind::registered)).address == 0);
    CHECK(allocations.take(4096, uint32_t(Kind::pinned)).address == 4096);
}

TEST_CASE("an allocation is exported until it is freed, and another there is not") {
    Allocations allocations;
    CHECK_FALSE(allocations.set_exported(4096, 1));
    REQUIRE(allocations.insert(made_at(4096)));
    const uint64_t id = allocations.find(4096).id;
    CHECK_FALSE(allocations.find(4096).exported);
    CHECK_FALSE(allocations.set_exported(4096, id + 1));
    CHECK(allocations.set_exported(4096, id));
    CHECK(allocations.take(4096, on_device).exported);
    CHECK_FALSE(allocations.set_exported(4096, id)); // it is freed
    REQUIRE(allocations.insert(made_at(4096)));
    CHECK_FALSE(allocations.set_exported(4096, id));
    CHECK_FALSE(allocations.find(4096).exported);
}

namespace {

// A graph's memory, which is in no launch yet.
AllocationName captured_at(Allocations &allocations, uint64_t address) {
    REQUIRE(allocations.insert(made_at(address, 300, Kind::captured)));
    return {address, allocations.find(address).id};
}

} // namespace

TEST_CASE("a graph's memory is the program's from each launch to the free that follows") {
    Allocations allocations;
    const AllocationName name = captured_at(allocations, 4096);
    for (int launch = 0; launch < 3; launch++) {
        allocations.set_launched(name);
        CHECK_FALSE(allocations.find(4096).freed);
        CHECK_FALSE(allocations.take(4096, on_device).freed);
        CHECK(allocations.find(4096).freed);
        CHECK(allocations.take(4096, on_device).freed);
    }
    CHECK(allocations.end_graph(name).address == 4096);
    CHECK(allocations.end_graph(name).address == 0);
    CHECK(allocations.take(4096, on_device).address == 0);
    CHECK(allocations.take(4096, on_device).freed);
}

TEST_CASE("what the program has of a graph that ends is freed like other memory, once") {
    Allocations allocations;
    const AllocationName name = captured_at(allocations, 4096);
    allocations.set_launched(name);
    CHECK(allocations.end_graph(name).address == 0);
    CHECK(allocations.find(4096).kind == Kind::ordered);
    CHECK(allocations.take(4096, on_device).size == 300);
    CHECK(allocations.find(4096).address == 0);
    CHECK(allocations.find(4096).freed);
}

TEST_CASE("a graph's memory that no launch has left goes with the graph, freed or not") {
    Allocations allocations;
    const AllocationName freed = captured_at(allocations, 4096);
    const AllocationName kept = captured_at(allocations, 8192);
    CHECK_FALSE(allocations.take(4096, on_device).freed);
    CHECK_FALSE(allocations.find(4096).freed);
    CHECK(allocations.end_graph(freed).address == 4096);
    CHECK(allocations.end_graph(kept).address == 8192);
}

TEST_CASE("an allocation's name is not that of another one at its address") {
    Allocations allocations;
    const AllocationName first = captured_at(allocations, 4096);
    REQUIRE(allocations.remove(first).address == 4096);
    REQUIRE(allocations.remove(first).address == 0);
    const AllocationName second = captured_at(allocations, 4096);
    allocations.set_launched(first);
    CHECK_FALSE(allocations.find(4096).is_programs());
    CHECK(allocations.end_graph(first).address == 0);
    CHECK(allocations.take(first).address == 0);
    CHECK(allocations.take(second).size == 300);
    CHECK(allocations.find(4096).size == 300);
}

TEST_CASE("a graph's memory is forgotten when the driver gives out its address") {
    Allocations allocations;
    const AllocationName name = captured_at(allocations, 4096);
    allocations.set_launched(name);
    CHECK_FALSE(allocations.take(4096, on_device).freed);
    allocations.forget_within(4096, 300); // the driver has given this memory out
    CHECK(allocations.take(4096, on_device).address == 0);
    CHECK_FALSE(allocations.find(4096).freed);
}

TEST_CASE("what a context has left where the driver gives out memory is forgotten") {
    Allocations allocations;
    REQUIRE(allocations.insert(made_at(4096)));
    allocations.forget_within(4096, 256);
    CHECK(allocations.find(4096).address == 0);
}

TEST_CASE("what could not be freed is as it was") {
    Allocations allocations;
    REQUIRE(allocations.insert(made_at(4096, 300)));
    const Allocation taken = allocations.take(4096, on_device);
    allocations.put_back(taken);
    CHECK_FALSE(allocations.find(4096).freed);
    CHECK(allocations.find(4096).size == 300);
    CHECK(allocations.find(4096).id == taken.id);
}

TEST_CASE("what was freed is known as freed until its address is given out again") {
    Allocations allocations;
    CHECK_FALSE(allocations.find(4096).freed);
    REQUIRE(allocations.insert(made_at(4096)));
    CHECK_FALSE(allocations.take(4096, on_device).freed);
    CHECK(allocations.find(4096).freed);
    CHECK(allocations.take(4096, on_device).freed);
    CHECK(allocations.take(4096, on_device).address == 0);
    REQUIRE(allocations.insert(made_at(4096)));
    CHECK_FALSE(allocations.find(4096).freed);
    CHECK(allocations.take(4096, on_device).address == 4096);
    allocations.forget_within(4096, 256); // by the driver itself
    CHECK_FALSE(allocations.find(4096).freed);
}

TEST_CASE(
    "an address that was freed is not known as freed within what the driver gives out later") {
    Allocations allocations;
    constexpr uint64_t mib = 1 << 20, begin = 0x7f0000000000;
    for (const uint64_t address : {begin, begin + 3 * mib, begin + 9 * mib, begin + 64 * mib}) {
        REQUIRE(allocations.insert(made_at(address)));
        REQUIRE(allocations.take(address, on_device).address == address);
        CHECK(allocations.find(address).freed);
    }
    allocations.forget_within(begin + 512, 10 * mib);
    CHECK_FALSE(allocations.find(begin + 3 * mib).freed);
    CHECK_FALSE(allocations.take(begin + 3 * mib, on_device).freed);
    CHECK_FALSE(allocations.find(begin + 9 * mib).freed);
    CHECK(allocations.find(begin + 64 * mib).freed);
}

TEST_CASE("what was freed after the driver gave out memory around it is known as freed") {
    Allocations allocations;
    allocations.forget_within(4096, 1 << 20);
    REQUIRE(allocations.insert(made_at(8192)));
    REQUIRE(allocations.take(8192, on_device).address == 8192);
    allocations.forget_within(uint64_t(1) << 30, 1 << 20);
    CHECK(allocations.find(8192).freed);
    CHECK(allocations.take(8192, on_device).freed);
}

TEST_CASE("each allocation has an id of its own, also at the same address") {
    Allocations allocations;
    std::set<uint64_t> ids;
    for (int i = 0; i < 100; i++) {
        REQUIRE(allocations.insert(made_at(4096)));
        ids.insert(allocations.take(4096, on_device).id);
    }
    CHECK(ids.size() == 100);
}

TEST_CASE("a hundred thousand allocations are found, and half of them gone leaves the rest") {
    Allocations allocations;
    constexpr uint64_t count = 100000;
    for (uint64_t i = 1; i <= count; i++) {
        REQUIRE(allocations.insert(made_at(i * 512, i)));
    }
    for (uint64_t i = 1; i <= count; i += 2) {
        REQUIRE(allocations.take(i * 512, on_device).size == i);
    }
    for (uint64_t i = 1; i <= count; i++) {
        REQUIRE(allocations.find(i * 512).size == (i % 2 ? 0 : i));
    }
}

TEST_CASE("memory of the wanted kinds is found by an address within it") {
    Allocations allocations;
    const auto pinned = uint32_t(Kind::pinned);
    REQUIRE(allocations.insert(made_at(0x10000, 1000)));
    REQUIRE(allocations.insert(made_at(0x20000, 1000, Kind::pinned)));
    CHECK(allocations.find_around(0x10000, on_device).address == 0x10000);
    CHECK(allocations.find_around(0x10000 + 999, on_device).address == 0x10000);
    CHECK(allocations.find_around(0x10000 + 1000, on_device).address == 0);
    CHECK(allocations.find_around(0x10000, pinned).address == 0);
    CHECK(allocations.find_around(0x20000 + 500, on_device).address == 0);
    CHECK(allocations.find_around(0x20000 + 500, pinned).address == 0x20000);
}

TEST_CASE("with a context goes all that is in it, but not the program's own memory") {
    Allocations allocations;
    for (uint64_t i = 1; i <= 1000; i++) {
        REQUIRE(allocations.insert(made_at(i * 512, i, Kind::ordered, 1 + i % 2)));
    }
    REQUIRE(allocations.insert(made_at(0x900000, 64, Kind::registered, 1)));
    allocations.forget(context_number(1));
    for (uint64_t i = 1; i <= 1000; i++) {
        REQUIRE((allocations.find(i * 512).address != 0) == (i % 2 == 1));
    }
    CHECK(allocations.find(0x900000).address != 0);
}

TEST_CASE("threads insert and take at the same time") {
    Allocations allocations;
    std::atomic<int> wrong{0};
    in_threads(4, [&](size_t number) {
        for (uint64_t i = 1; i <= 5000; i++) {
            const uint64_t address = (i * 4 + number) * 256;
            wrong += !allocations.insert(made_at(address, i));
            wrong += i > 10 && allocations.take(address - 10 * 1024, on_device).size != i - 10;
        }
    });
    CHECK(wrong == 0);
}
