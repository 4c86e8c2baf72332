#include "policy/plan.h"

#include "catch.h"
#include "policy/growth.h"
#include "sizes.h"

#include <algorithm>
#include <random>

using namespace emm::pool;

namespace {

// Idle pieces of these sizes in MiB, far from each other, each in free memory of its own.
std::vector<IdlePiece> idle_of(const std::vector<uint64_t> &sizes) {
    std::vector<IdlePiece> idle;
    for (const uint64_t size : sizes) {
        IdlePiece each;
        each.piece = {(idle.size() + 1) << 40, size * mib, idle.size() + 1};
        each.around = size * mib;
        idle.push_back(each);
    }
    return idle;
}

FillRequest missing(uint64_t bytes, uint64_t fresh = 0) {
    return {bytes, fresh, UINT64_MAX, 8 * mib, 0};
}

uint64_t bytes_of(const std::vector<IdlePiece> &pieces) {
    uint64_t bytes = 0;
    for (const IdlePiece &each : pieces) {
        bytes += each.piece.bytes;
    }
    return bytes;
}

} // namespace

TEST_CASE("smaller pieces near a limit make no move cheaper") {
    std::vector<IdlePiece> idle = idle_of({8, 8}), same = idle;
    FillRequest small = missing(16 * mib), usual = small;
    usual.piece = small.priced = 16 * mib;
    small.piece = 2 * mib;
    CHECK(plan_fill(small, idle).growth_ns == plan_fill(usual, same).growth_ns);
}

TEST_CASE("what may be new memory is new memory") {
    auto idle = idle_of({64, 64});
    const FillPlan plan = plan_fill(missing(20 * mib, 20 * mib), idle);
    CHECK((plan.moved.empty() && plan.released.empty()));
    CHECK(plan.created == 20 * mib);
    CHECK(plan.mapped == 20 * mib);
    CHECK(plan.sizes == std::vector<uint64_t>{8 * mib, 8 * mib, 4 * mib});
    CHECK(plan.cost() == 0);
}

TEST_CASE("growth alone may take more than is missing, but not more than there is room for") {
    std::vector<IdlePiece> none;
    FillRequest request = missing(2 * mib, 2 * mib);
    request.growth = 32 * mib;
    CHECK(plan_fill(request, none).mapped == 32 * mib);
    request.room = 16 * mib;
    CHECK(plan_fill(request, none).mapped == 16 * mib);
}

TEST_CASE("a plan of moves alone takes the driver a map for each piece, and one access at least") {
    auto idle = idle_of({32, 32});
    const FillPlan moves = plan_fill(missing(64 * mib), idle);
    CHECK(moves.only_moves());
    CHECK(moves.least_ns() == map_ns + 2 * one_map_ns);
    CHECK_FALSE(plan_fill(missing(68 * mib, 4 * mib), idle).only_moves());
    std::vector<IdlePiece> none;
    CHECK_FALSE(plan_fill(missing(64 * mib, 64 * mib), none).only_moves());
}

TEST_CASE("the largest pieces that are not too much are moved") {
    auto idle = idle_of({2, 64, 16, 32, 128});
    const FillPlan plan = plan_fill(missing(98 * mib), idle);
    CHECK(plan.moved.size() == 3);
    CHECK(bytes_of(plan.moved) == 98 * mib);
    CHECK(plan.created == 0);
    CHECK(plan.cost() == 0); // 13 new pieces would cost more than these three
}

TEST_CASE("of pieces as large as each other those of the smallest free memory move") {
    auto idle = idle_of({32, 32, 32});
    idle[0].around = 128 * mib;
    idle[1].around = 96 * mib;
    const FillPlan plan = plan_fill(missing(32 * mib), idle);
    REQUIRE(plan.moved.size() == 1);
    CHECK(plan.moved[0].around == 32 * mib);
}

TEST_CASE("a piece that is a little too large moves as it is") {
    auto idle = idle_of({66});
    const FillPlan plan = plan_fill(missing(64 * mib), idle);
    CHECK(plan.moved.size() == 1);
    CHECK(plan.mapped == 66 * mib);
    FillRequest narrow = missing(64 * mib);
    narrow.room = 66 * mib;
    CHECK(plan_fill(narrow, idle).moved.size() == 1);
    narrow.room = 64 * mib;
    CHECK(plan_fill(narrow, idle).moved.empty());
}

TEST_CASE("a piece that is much too large is exchanged for what is missing") {
    auto idle = idle_of({256});
    const FillPlan plan = plan_fill(missing(10 * mib), idle);
    CHECK(plan.moved.empty());
    CHECK(bytes_of(plan.released) == 256 * mib);
    CHECK(plan.created == 10 * mib);
    CHECK(plan.mapped == 10 * mib);
    auto by_an_eighth = idle_of({126}), by_a_seventh = idle_of({128});
    CHECK(plan_fill(missing(112 * mib), by_an_eighth).moved.size() == 1);
    CHECK(plan_fill(missing(112 * mib), by_a_seventh).released.size() == 1);
}

TEST_CASE("many small pieces are exchanged for a few new ones") {
    auto idle = idle_of(std::vector<uint64_t>(64, 2));
    const FillPlan plan = plan_fill({128 * mib, 0, UINT64_MAX, 64 * mib, 0}, idle);
    CHECK(plan.moved.empty());
    CHECK(plan.released.size() == 64);
    CHECK(plan.sizes.size() == 2);
    auto few = idle_of({2, 2, 2});
    CHECK(plan_fill(missing(6 * mib), few).moved.size() == 3);
    auto six = idle_of(std::vector<uint64_t>(6, 2)), seven = idle_of(std::vector<uint64_t>(7, 2));
    CHECK(plan_fill({12 * mib, 0, UINT64_MAX, 12 * mib, 0}, six).released.size() == 6);
    CHECK(plan_fill({14 * mib, 0, UINT64_MAX, 12 * mib, 0}, seven).moved.size() == 7); // for two
    auto large = idle_of(std::vector<uint64_t>(5, 64)); // as cheap to return as small ones
    CHECK(plan_fill({320 * mib, 0, UINT64_MAX, 512 * mib, 0}, large).released.size() == 5);
}

TEST_CASE("a plan costs what the driver takes for its pieces beyond what growth would take") {
    auto two = idle_of({2, 4});
    CHECK(plan_fill(missing(6 * mib), two).cost() ==
          2 * (unmap_ns + map_ns) - (create_ns + map_ns));
    auto much = idle_of({256});
    CHECK(plan_fill(missing(10 * mib), much).cost() == unmap_ns + release_ns);
    auto some = idle_of({4});
    CHECK(plan_fill(missing(10 * mib), some).cost() == unmap_ns - create_ns);
}

TEST_CASE("where nothing may go back a piece moves, or stays if it is much too large") {
    FillRequest request = missing(10 * mib);
    request.keeps = true;
    auto large = idle_of({256});
    const FillPlan grown = plan_fill(request, large);
    CHECK((grown.moved.empty() && grown.released.empty()));
    CHECK(grown.created == 10 * mib);
    auto fitting = idle_of({12, 256});
    CHECK(bytes_of(plan_fill(request, fitting).moved) == 12 * mib);
    auto small = idle_of(std::vector<uint64_t>(64, 2));
    request = {128 * mib, 0, UINT64_MAX, 64 * mib, 0, true};
    const FillPlan moved = plan_fill(request, small);
    CHECK(moved.moved.size() == 64);
    CHECK((moved.released.empty() && moved.sizes.empty()));
}

TEST_CASE("where idle memory is not enough the rest is new") {
    auto idle = idle_of({4});
    const FillPlan plan = plan_fill(missing(10 * mib), idle);
    CHECK(bytes_of(plan.moved) + bytes_of(plan.released) == 4 * mib);
    CHECK(plan.mapped == 10 * mib);
}

TEST_CASE("a plan always serves the request, takes no piece twice and adds up") {
    std::mt19937 random{3};
    for (int i = 0; i < 2000; i++) {
        std::vector<uint64_t> sizes(random() % 12);
        for (uint64_t &size : sizes) {
            size = 2 * (1 + random() % 64);
        }
        auto idle = idle_of(sizes);
        FillRequest request = missing(page_bytes * (1 + random() % 100));
        request.fresh = page_bytes * (random() % 20);
        request.room = request.missing + page_bytes * (random() % 10);
        request.keeps = random() % 4 == 0;
        const FillPlan plan = plan_fill(request, idle);
        CHECK(plan.mapped >= request.missing);
        CHECK(plan.mapped <= request.room);
        CHECK(plan.mapped == bytes_of(plan.moved) + plan.created);
        uint64_t made = 0;
        for (const uint64_t size : plan.sizes) {
            CHECK((size > 0 && size % page_bytes == 0 && size <= request.piece));
            made += size;
        }
        CHECK(made == plan.created);
        std::vector<IdlePiece> all = plan.moved;
        all.insert(all.end(), plan.released.begin(), plan.released.end());
        std::vector<uint64_t> handles;
        for (const IdlePiece &each : all) {
            handles.push_back(each.piece.handle);
        }
        std::sort(handles.begin(), handles.end());
        CHECK(std::adjacent_find(handles.begin(), handles.end()) == handles.end());
        CHECK(plan.created <= std::max(request.fresh, request.missing));
        CHECK((plan.released.empty() || !request.keeps));
    }
}
