#include "serve/driver_regions.h"

#include "catch.h"
#include "parts/threads.h"

#include <memory>

using namespace emm::run;

namespace {

constexpr uint64_t region = uint64_t(1) << DriverRegions::region_bits;

} // namespace

TEST_CASE("memory is given since each moment before, in every region that it reaches into") {
    const auto regions = std::make_unique<DriverRegions>();
    const uint64_t before = regions->now();
    regions->add(5 * region - 1, region + 2); // last byte of a region to first of another
    CHECK_FALSE(regions->is_given_since(before, 4 * region - 1));
    CHECK(regions->is_given_since(before, 4 * region));
    CHECK(regions->is_given_since(before, 5 * region));
    CHECK(regions->is_given_since(before, 6 * region));
    CHECK_FALSE(regions->is_given_since(before, 7 * region));
    CHECK_FALSE(regions->is_given_since(regions->now(), 5 * region));
}

TEST_CASE("what is given elsewhere, or before, changes nothing of a region") {
    const auto regions = std::make_unique<DriverRegions>();
    regions->add(region, 256);
    const uint64_t between = regions->now();
    regions->add(3 * region, 256);
    CHECK_FALSE(regions->is_given_since(between, region));
    CHECK(regions->is_given_since(between, 3 * region));
}

TEST_CASE("memory at one multiple of a large power of two is not given at the others") {
    const auto regions = std::make_unique<DriverRegions>();
    const uint64_t before = regions->now();
    regions->add(uint64_t(1) << 46, 256);
    CHECK(regions->is_given_since(before, uint64_t(1) << 46));
    for (unsigned bits = 30; bits < 46; bits++) {
        CHECK_FALSE(regions->is_given_since(before, uint64_t(1) << bits));
        CHECK_FALSE(regions->is_given_since(before, (uint64_t(1) << 46) + (uint64_t(1) << bits)));
    }
}

TEST_CASE("memory of many regions is given in each") {
    const auto regions = std::make_unique<DriverRegions>();
    for (const uint64_t count : {DriverRegions::region_count / 2, DriverRegions::region_count,
                                 3 * DriverRegions::region_count}) {
        const uint64_t before = regions->now(), first = 12345;
        regions->add(first * region, count * region);
        for (uint64_t i = 0; i < count; i++) {
            REQUIRE(regions->is_given_since(before, (first + i) * region));
        }
    }
}

TEST_CASE("memory of no bytes is where it begins") {
    const auto regions = std::make_unique<DriverRegions>();
    const uint64_t before = regions->now();
    regions->add(2 * region, 0);
    CHECK(regions->is_given_since(before, 2 * region));
    CHECK_FALSE(regions->is_given_since(before, region));
}

TEST_CASE("of what threads are given in one region the latest counts") {
    const auto regions = std::make_unique<DriverRegions>();
    constexpr uint64_t rounds = 10000;
    in_threads(2, [&](size_t) {
        for (uint64_t round = 0; round < rounds; round++) {
            regions->add(region, 256);
        }
    });
    CHECK(regions->now() == 2 * rounds);
    CHECK(regions->is_given_since(2 * rounds - 1, region));
    CHECK_FALSE(regions->is_given_since(2 * rounds, region));
}
