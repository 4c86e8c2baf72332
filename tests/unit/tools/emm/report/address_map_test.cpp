#include "catch.h"
#include "recorded.h"
#include "report/address_map.h"

using namespace emm::tool;

TEST_CASE("wide unused gaps are left out of the row, narrow ones are not") {
    Script script;
    script.alloc(1, 0, 100, "", 1000).alloc(2, 0, 100, "", 1105).alloc(3, 0, 100, "", 900000);
    const AddressRow row(script.history(), addresses_of(script.history()), 10);
    CHECK(row.bytes() == 305);
    CHECK(row.cell_bytes() == 31);
    CHECK(row.cells() == 10);
    CHECK(row.offset_of(1105) == 105);
    CHECK(row.offset_of(900000) == 205);
    CHECK(row.address_of(0) == 1000);
    CHECK(row.address_of(9) == 900000 + 9 * 31 - 205);
    CHECK(row.cuts() == std::vector<size_t>{6});
}

TEST_CASE("a map says how full each cell is, and with which group") {
    Script script;
    script.alloc(1, 0, 100, "/a.so+0x1 (f+0x1)", 1000)
        .alloc(2, 1, 50, "/a.so+0x2 (g+0x1)", 1100)
        .alloc(3, 2, 50, "/a.so+0x1 (f+0x1)", 1150)
        .free(1, 3);
    const History &history = script.history();
    const std::vector<uint64_t> addresses = addresses_of(history);
    const GroupSet groups = groups_of(history, by_caller(history, script.recorded.sites), 2);
    const AddressRow row(history, addresses, 2);
    const std::vector<MapMoment> moments = map_moments(history, addresses, groups, row, {0, 1, 3});
    REQUIRE(moments.size() == 3);
    CHECK(moments[0].cells == std::vector<uint8_t>{0xf0, 0});
    CHECK(moments[1].cells == std::vector<uint8_t>{0xf0, 0x71});
    CHECK(moments[2].live == 100);
    CHECK(moments[2].time == 3);
    CHECK(moments[2].cells.front() == 0);
    CHECK(moments[2].cells.back() >> 4 == 15);
}

TEST_CASE("a block without an address is in no map") {
    Script script;
    script.alloc(1, 0, 100).alloc(2, 1, 100);
    const std::vector<uint64_t> addresses = {no_address, 4096};
    const AddressRow row(script.history(), addresses, 4);
    CHECK(row.bytes() == 100);
    const GroupSet groups = groups_of(script.history(), by_lifetime(script.history()), 1);
    CHECK(map_moments(script.history(), addresses, groups, row, {1}).front().cells.size() == 4);
    const AddressRow none(script.history(), {no_address, no_address}, 4);
    CHECK(none.cells() == 0);
    CHECK(gaps_at(script.history(), {no_address, no_address}, none, 1).count == 0);
}

TEST_CASE("moments are evenly spread, and chosen ones are among them once") {
    Script script;
    for (uint64_t i = 0; i < 101; i++) {
        script.alloc(i, i, 1);
    }
    CHECK(moments_of(script.history(), 3, {7, 50}) == std::vector<uint32_t>{0, 7, 50, 100});
    Script one;
    one.alloc(1, 0, 1);
    CHECK(moments_of(one.history(), 3, {0}) == std::vector<uint32_t>{0});
}

TEST_CASE("gaps are what lies between the live blocks of a moment") {
    Script script;
    script.alloc(1, 0, 100, "", 1000)
        .alloc(2, 0, 100, "", 1100)
        .alloc(3, 0, 100, "", 1200)
        .alloc(4, 0, 100, "", 1303)
        .free(2, 1);
    const std::vector<uint64_t> addresses = addresses_of(script.history());
    const AddressRow row(script.history(), addresses, 4);
    const Gaps gaps = gaps_at(script.history(), addresses, row, 4);
    CHECK(gaps.count == 2);
    CHECK(gaps.bytes == 103);
    CHECK(gaps.largest == 100);
    CHECK(gaps_at(script.history(), addresses, row, 2).count == 0);
}

TEST_CASE("a block at the end of all addresses does no harm") {
    Script script;
    script.alloc(1, 0, 1000, "", no_address - 10).alloc(2, 0, 16, "", 64);
    const std::vector<uint64_t> addresses = addresses_of(script.history());
    const AddressRow row(script.history(), addresses, 4);
    CHECK(row.bytes() == 26);
    const GroupSet groups = groups_of(script.history(), by_lifetime(script.history()), 1);
    CHECK(map_moments(script.history(), addresses, groups, row, {1}).front().live == 1016);
}

TEST_CASE("a block of all addresses fills every cell of the row") {
    Script script;
    script.alloc(1, 0, ~uint64_t(0), "", 1).free(1, 1);
    const std::vector<uint64_t> addresses = addresses_of(script.history());
    const AddressRow row(script.history(), addresses, 8);
    const GroupSet groups = groups_of(script.history(), by_lifetime(script.history()), 1);
    const auto moments = map_moments(script.history(), addresses, groups, row, {0, 1});
    CHECK(moments[0].cells == std::vector<uint8_t>(8, 0xf0));
    CHECK(moments[1].cells == std::vector<uint8_t>(8, 0));
    CHECK(gaps_at(script.history(), addresses, row, 0).count == 0);
}
