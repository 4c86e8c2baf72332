#include "policy/caches.h"

#include "catch.h"

using namespace emm::pool;

TEST_CASE("a bin holds 128 KiB of slots, but from 4 to 64 of them") {
    CHECK(most_slots_a_bin(class_of(512)) == 64);
    CHECK(most_slots_a_bin(class_of(2048)) == 64);
    CHECK(most_slots_a_bin(class_of(4096)) == 32);
    CHECK(most_slots_a_bin(class_of(20 << 10)) == 6);
    CHECK(most_slots_a_bin(class_of(slab_limit)) == 4);
}
