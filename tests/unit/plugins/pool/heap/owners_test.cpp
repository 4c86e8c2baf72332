#include "heap/owners.h"

#include "catch.h"

#include <sys/mman.h>
#include <unistd.h>

using namespace emm::pool;

namespace {

const uint64_t per_part = uint64_t(sysconf(_SC_PAGESIZE)) / sizeof(uintptr_t);

bool takes_host_memory(const Owners &owners, uint64_t part) {
    unsigned char resident = 0;
    const auto *where = owners.from(part * per_part);
    REQUIRE(mincore(const_cast<std::atomic<uintptr_t> *>(where), per_part * sizeof(uintptr_t),
                    &resident) == 0);
    return resident & 1;
}

uint64_t parts_with_host_memory(const Owners &owners, uint64_t parts) {
    uint64_t found = 0;
    for (uint64_t part = 0; part < parts; part++) {
        found += takes_host_memory(owners, part);
    }
    return found;
}

} // namespace

TEST_CASE("what begins at a granule is found there until it is gone") {
    Owners owners(8 * per_part);
    owners.set(3, 7);
    owners.set(4, 9);
    owners.set(3, 8);
    CHECK((owners.at(3) == 8 && owners.at(4) == 9 && owners.at(5) == 0));
    owners.set(3, 0);
    CHECK((owners.at(3) == 0 && owners.at(4) == 9));
}

TEST_CASE("host memory in which nothing begins any longer goes back after a while") {
    const uint64_t parts = 16000;
    Owners owners(parts * per_part);
    for (uint64_t part = 0; part < parts; part++) { // one block, which moves
        owners.set(part * per_part + part % per_part, 1);
        owners.set(part * per_part + part % per_part, 0);
    }
    CHECK(parts_with_host_memory(owners, parts) <= parts / 4 + 100);
    for (uint64_t part = 0; part < parts; part++) {
        REQUIRE(owners.at(part * per_part + part % per_part) == 0);
    }
}

TEST_CASE("what is in use again stays, however much becomes empty beside it") {
    const uint64_t parts = 16000;
    Owners owners(parts * per_part);
    owners.set(5, 1);
    owners.set(5, 0);
    owners.set(6, 2);
    for (uint64_t part = 1; part < parts; part++) {
        owners.set(part * per_part, 1);
        owners.set(part * per_part, 0);
    }
    CHECK(owners.at(6) == 2);
    owners.set(6, 0);
    owners.set(5, 3);
    CHECK(owners.at(5) == 3);
}

TEST_CASE("host memory stays for what a program frees and asks for again") {
    const uint64_t parts = 16000;
    Owners owners(parts * per_part);
    for (int turn = 0; turn < 3; turn++) {
        for (const uintptr_t owner : {1, 0}) {
            for (uint64_t part = 0; part < parts; part++) {
                owners.set(part * per_part, owner);
            }
            CHECK(parts_with_host_memory(owners, parts) == parts);
        }
    }
}

// As unordered blocks do while their memory is pending: one block is in use, at ever new places.
TEST_CASE("what wanders over a quarter of the addresses keeps its host memory") {
    const uint64_t parts = 16000;
    Owners owners(parts * per_part);
    for (uint64_t i = 0; i < 2 * parts; i++) {
        const uint64_t part = i % (parts / 4);
        owners.set(part * per_part, 1);
        owners.set(part * per_part, 0);
    }
    CHECK(parts_with_host_memory(owners, parts) == parts / 4);
}

TEST_CASE("host memory goes back while a program uses less than before") {
    const uint64_t parts = 16000;
    Owners owners(parts * per_part);
    for (const uintptr_t owner : {1, 0}) {
        for (uint64_t part = 0; part < parts; part++) {
            owners.set(part * per_part, owner);
        }
    }
    for (uint64_t i = 0; i < 20 * parts; i++) {
        const uint64_t part = i % parts;
        owners.set(part * per_part, 1);
        owners.set(part * per_part, 0);
    }
    CHECK(parts_with_host_memory(owners, parts) <= parts / 4 + 100);
}

TEST_CASE("what wanders takes host memory for a quarter more than was in use at most") {
    const uint64_t parts = 16000, used = 4000;
    Owners owners(parts * per_part);
    for (uint64_t part = 0; part < parts; part++) {
        owners.set(part * per_part, 1);
        if (part >= used) {
            owners.set((part - used) * per_part, 0);
        }
    }
    CHECK(parts_with_host_memory(owners, parts) <= used + used / 4 + parts / 4 + 100);
}
