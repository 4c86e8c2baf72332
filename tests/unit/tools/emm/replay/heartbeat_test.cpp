#include "catch.h"
#include "replay/heartbeat.h"

using namespace emm::tool;

namespace {

constexpr double second = 1, minute = 60, hour = 60 * minute;

} // namespace

TEST_CASE("a step that has ended is progress, however long it took") {
    CHECK(is_at_work({7, 0}, {8, 0}, second, 0));
    CHECK(is_at_work({7, 0}, {8, 0}, hour, hour));
}

TEST_CASE("a step that computes is progress for half an hour") {
    CHECK(is_at_work({7, 5}, {7, 5.5}, second, 20 * minute));
    CHECK_FALSE(is_at_work({7, 5}, {7, 5.5}, second, 40 * minute));
}

TEST_CASE("waiting is no progress, nor is what a waiting process computes beside it") {
    CHECK_FALSE(is_at_work({7, 5}, {7, 5}, second, second));
    CHECK_FALSE(is_at_work({7, 5}, {7, 5.05}, second, second));
}
