#include "policy/pace.h"

#include "catch.h"

using namespace emm::pool;

namespace {

DriverPace after(std::initializer_list<uint64_t> taken_us) {
    DriverPace pace;
    for (const uint64_t each : taken_us) {
        pace.note(50'000, each * 1000);
    }
    return pace;
}

} // namespace

TEST_CASE("a driver that takes less than 32 times as long as expected counts as quick") {
    CHECK(DriverPace().factor() == 1);
    CHECK(after({10, 10, 10, 10}).factor() == 1);
    CHECK(after({1599, 1599, 1599, 1599}).factor() == 1);
    CHECK(after({1600, 1600, 1600, 1600}).factor() == 32);
}

TEST_CASE("the quickest of the latest four moves counts") {
    CHECK(after({5000, 5000, 5000}).factor() == 1); // there were no four yet
    CHECK(after({5000, 2500, 5000, 5000}).factor() == 50);
    CHECK(after({5000, 5000, 5000, 50, 5000}).factor() == 1);
    CHECK(after({50, 5000, 5000, 5000, 5000}).factor() == 100);
}
