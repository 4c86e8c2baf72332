#include "catch.h"

#include "policy/copies.h"

using namespace emm::pool;

namespace {

constexpr uint64_t gap = largest_gap;
using Ranges = std::vector<Range>;

} // namespace

TEST_CASE("ranges to copy are what is used, within the places that leave") {
    CHECK(ranges_to_copy({}, {{0, 100}}) == Ranges{});
    CHECK(ranges_to_copy({{10, 20}}, {}) == Ranges{});
    CHECK(ranges_to_copy({{10, 20}}, {{0, 15}}) == Ranges{{10, 15}});
    CHECK(ranges_to_copy({{10, 50}}, {{0, 15}, {30, 100}}) == Ranges{{10, 15}, {30, 50}});
}

TEST_CASE("ranges to copy are one where little lies between them, and never leave their place") {
    CHECK(ranges_to_copy({{0, 10}, {gap + 9, gap + 20}}, {{0, 9 * gap}}) == Ranges{{0, gap + 20}});
    CHECK(ranges_to_copy({{0, 10}, {gap + 10, gap + 20}}, {{0, 9 * gap}}) ==
          Ranges{{0, 10}, {gap + 10, gap + 20}});
    CHECK(ranges_to_copy({{0, 10}, {50, 60}}, {{0, 30}, {40, 100}}) == Ranges{{0, 10}, {50, 60}});
    CHECK(ranges_to_copy({{0, 10}, {50, 60}}, {{0, 40}, {40, 100}}) == Ranges{{0, 60}});
}

TEST_CASE("places grow by the rest of the ranges that lie in them in part") {
    CHECK(with_whole_blocks({{10, 20}}, {}) == Ranges{{10, 20}});
    CHECK(with_whole_blocks({{10, 20}}, {{0, 10}, {20, 30}}) == Ranges{{10, 20}});
    CHECK(with_whole_blocks({{10, 20}}, {{5, 11}, {12, 14}, {19, 30}}) == Ranges{{5, 30}});
    CHECK(with_whole_blocks({{10, 20}, {30, 40}}, {{15, 32}, {39, 45}}) == Ranges{{10, 45}});
    CHECK(with_whole_blocks({{10, 20}, {30, 40}, {60, 70}}, {{0, 5}, {38, 41}, {50, 61}}) ==
          Ranges{{10, 20}, {30, 41}, {50, 70}});
}

TEST_CASE("common ranges are those of both") {
    CHECK(common_ranges({{0, 10}, {20, 30}}, {{5, 25}}) == Ranges{{5, 10}, {20, 25}});
    CHECK(common_ranges({{0, 10}}, {{10, 20}}) == Ranges{});
}
