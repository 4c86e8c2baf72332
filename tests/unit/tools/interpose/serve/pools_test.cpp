#include "serve/pools.h"

#include "catch.h"

using namespace emm::run;

TEST_CASE("what may lie idle is what is to be kept beyond live memory") {
    CHECK(idle_to_keep(150, 100) == 50);
    CHECK(idle_to_keep(100, 100) == 0);
    CHECK(idle_to_keep(64, 100) == 0);
    CHECK(idle_to_keep(0, 0) == 0);
    CHECK(idle_to_keep(UINT64_MAX, 1) == UINT64_MAX - 1);
}
