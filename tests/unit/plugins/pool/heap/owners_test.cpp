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

TEST_CASE("host memory stays while device memory does, wherever something begins in it") {
    const uint64_t parts = 16000;
    Owners owners(parts * per_part);
    for (int turn = 0; turn < 2; turn++) {
        for (uint64_t part = 0; part < parts; part++) { // one block, which moves
            owners.set(part * per_part + part % per_part, 1);
            owners.set(part * per_part + part % per_part, 0);
        }
        CHECK(parts_with_host_memory(owners, parts) == parts);
    }
}

TEST_CASE("host memory goes back for granules whose device memory has gone") {
    const uint64_t parts = 100;
    Owners owners(parts * per_part);
    for (int turn = 0; turn < 2; turn++) {
        for (const uintptr_t owner : {1, 0}) {
            for (uint64_t part = 0; part < parts; part += 1 + part % 3) { // not all of them
                owners.set(part * per_part + part, owner);
            }
        }
        const uint64_t before = parts_with_host_memory(owners, 20);
        owners.discard(20 * per_part, parts * per_part);
        CHECK(before > 10);
        CHECK(parts_with_host_memory(owners, parts) == before);
        CHECK(parts_with_host_memory(owners, 20) == before);
    }
    owners.discard(0, 20 * per_part);
    CHECK(parts_with_host_memory(owners, parts) == 0);
}

// A host page may stand for more device memory than has gone.
TEST_CASE("a part of which only some goes back stays as long as something begins in it") {
    Owners owners(4 * per_part);
    owners.set(per_part, 1);
    owners.set(2 * per_part, 2);
    owners.set(2 * per_part, 0);
    owners.discard(per_part + per_part / 2, 3 * per_part);
    CHECK(owners.at(per_part) == 1);
    CHECK(takes_host_memory(owners, 1));
    CHECK(!takes_host_memory(owners, 2));
    owners.set(per_part, 0);
    owners.discard(per_part + per_part / 2, 2 * per_part);
    CHECK(!takes_host_memory(owners, 1));
    owners.set(2 * per_part, 3);
    CHECK(owners.at(2 * per_part) == 3);
}
