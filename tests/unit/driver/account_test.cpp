#include "driver/account.h"

#include "catch.h"

#include <map>

using namespace emm::driver;

namespace {

constexpr uint64_t mib = 1 << 20;

struct PoolBytes {
    uint64_t reserved, used;
};
std::map<uint64_t, PoolBytes> pools; // the driver's figures
bool is_silent = false;
std::optional<uint64_t> ask(uint64_t pool, PoolFigure which) {
    const PoolBytes its = pools[pool];
    return is_silent ? std::nullopt
                     : std::optional(which == PoolFigure::used ? its.used : its.reserved);
}

Account::Charge charge(uint64_t bytes, Kind kind = Kind::physical,
                       Holder holder = Holder::program) {
    return {0, holder, kind, bytes};
}

uint64_t took(Account &account, const Account::Charge &charge, uint64_t pool = 0) {
    const uint64_t id = account.take(charge);
    REQUIRE(id != 0);
    account.keep(id, pool);
    return id;
}

const Tally &row(const Account::Figures &figures, Kind kind, Holder holder = Holder::program) {
    return figures.rows[size_t(holder)][size_t(kind)];
}

} // namespace

TEST_CASE("a bound holds over all kinds and holders, to the byte") {
    Account account(&ask);
    account.set_bound(0, 100);
    took(account, charge(60, Kind::block, Holder::managers));
    took(account, charge(30, Kind::array));
    CHECK(account.take(charge(11)) == 0);
    const uint64_t last = account.take(charge(10)); // the call may be under way
    CHECK(last != 0);
    CHECK(account.take(charge(1)) == 0);
    account.give(last);
    CHECK(account.take(charge(10)) != 0);
}

TEST_CASE("one device's bound is no other's, and memory of the host and of other APIs has none") {
    Account account(&ask);
    account.set_bound(0, 100);
    CHECK(account.take({1, Holder::program, Kind::physical, 1000}) != 0);
    for (const Kind kind : {Kind::external, Kind::managed, Kind::pinned}) {
        CHECK(took(account, charge(1000, kind)) != 0);
    }
    CHECK(account.used(0) == 0);
    CHECK(row(account.figures(0), Kind::pinned).bytes == 1000);
}

TEST_CASE("the peak of pools is that of their sum, and outlives them") {
    Account account(&ask);
    const auto take_and_trim = [&](uint64_t handle) {
        const uint64_t growth = account.take_growth(handle, 70);
        pools[handle] = {70, 70};
        account.give(growth);
        pools[handle] = {20, 0};
    };
    const auto peak = [&] {
        const uint64_t its = row(account.figures(0), Kind::pool, Holder::managers).peak_bytes;
        CHECK(account.managers_pools().peak_bytes == its);
        return its;
    };
    const uint64_t first = took(account, charge(0, Kind::pool, Holder::managers), 5),
                   second = took(account, charge(0, Kind::pool, Holder::managers), 6);
    take_and_trim(5);
    CHECK(peak() == 70);
    CHECK(account.managers_pools().bytes == 20);
    take_and_trim(6); // beside the 20 bytes of the first
    CHECK(peak() == 90);
    pools[5] = {75, 0};
    CHECK(peak() == 95);
    pools[5] = {20, 0};
    account.pool_ends(5);
    account.pool_ends(6);
    account.give(first);
    account.give(second);
    CHECK(peak() == 95);
    CHECK(account.managers_pools().bytes == 0);
    pools.clear();
}

TEST_CASE("a call that fails leaves no trace in the rows") {
    Account account(&ask);
    account.give(account.take(charge(50)));
    const Account::Figures figures = account.figures(0);
    CHECK(figures.used == 0);
    CHECK(row(figures, Kind::physical).made == 0);
    CHECK(row(figures, Kind::physical).peak_bytes == 0);
}

TEST_CASE("memory counts until its last reference has gone") {
    Account account(&ask);
    const uint64_t id = took(account, charge(50));
    account.keep(id); // a mapping
    CHECK(account.give(id));
    CHECK(account.used(0) == 50);
    CHECK(account.give(id));
    CHECK(account.used(0) == 0);
    CHECK_FALSE(account.give(id));
    CHECK(row(account.figures(0), Kind::physical).made == 1);
    CHECK(account.give(0));
}

TEST_CASE("rows know what there is, what there was at most and how many there ever were") {
    Account account(&ask);
    const uint64_t first = took(account, charge(100, Kind::array));
    took(account, charge(50, Kind::array));
    account.give(first);
    took(account, charge(20, Kind::array));
    const Tally tally = row(account.figures(0), Kind::array);
    CHECK(tally.live == 2);
    CHECK(tally.bytes == 70);
    CHECK(tally.peak_bytes == 150);
    CHECK(tally.made == 3);
}

TEST_CASE("a pool counts by its reserved bytes, and is charged for growing before it grows") {
    Account account(&ask);
    account.set_bound(0, 96 * mib);
    constexpr uint64_t handle = 7;
    const uint64_t pool = took(account, charge(0, Kind::pool), handle);
    const uint64_t growth = account.take_growth(handle, 33 * mib);
    REQUIRE(growth != 0);
    CHECK(account.used(0) == 64 * mib); // whole segments
    pools[handle] = {64 * mib, 33 * mib};
    account.give(growth);
    CHECK(account.used(0) == 64 * mib);
    CHECK(account.take(charge(33 * mib)) == 0);
    is_silent = true; // its last figures hold
    CHECK(account.take(charge(33 * mib)) == 0);
    is_silent = false;

    const uint64_t other = took(account, charge(32 * mib));
    CHECK(account.take_growth(handle, 32 * mib) == 0);
    account.give(other);
    CHECK(row(account.figures(0), Kind::pool).bytes == 64 * mib);
    account.give(pool);
    CHECK(account.used(0) == 0);
    pools.clear();
}

TEST_CASE(
    "a request that fits a pool's idle memory exceeds the bound only if the pool grows for it") {
    Account account(&ask);
    account.set_bound(0, 96 * mib);
    constexpr uint64_t handle = 7;
    const uint64_t pool = took(account, charge(0, Kind::pool), handle);
    const uint64_t other = took(account, charge(32 * mib));
    const uint64_t charged = account.take_growth(handle, 33 * mib);
    CHECK_FALSE(account.may_exceed(charged));
    pools[handle] = {64 * mib, 33 * mib};
    CHECK_FALSE(account.exceeds(charged));
    CHECK(account.keep(charged)); // no reference: its figure counts
    CHECK(account.give(charged));
    CHECK_FALSE(account.give(charged));

    CHECK(account.take_growth(handle, 32 * mib) == 0);
    const uint64_t idle = account.take_growth(handle, 31 * mib); // the pool has this much idle
    CHECK(account.may_exceed(idle));
    CHECK_FALSE(account.exceeds(idle));
    pools[handle] = {96 * mib, 33 * mib}; // it has grown all the same
    CHECK(account.exceeds(idle));
    account.give(idle);

    const uint64_t later = account.take_growth(handle, mib); // before the growth has gone
    CHECK(account.exceeds(later));
    pools[handle] = {64 * mib, 34 * mib};
    CHECK_FALSE(account.exceeds(later));
    account.give(later);
    CHECK(account.take(charge(1)) == 0);

    const uint64_t with_room = account.take_growth(handle, mib);
    account.give(other);
    pools[handle] = {96 * mib, 34 * mib};
    CHECK_FALSE(account.exceeds(with_room));
    CHECK_FALSE(account.exceeds(pool));
    CHECK_FALSE(account.exceeds(0));
    account.set_bound(0, 64 * mib); // less than the pool has: it may use its idle memory
    const uint64_t above = account.take_growth(handle, mib);
    CHECK(above != 0);
    CHECK_FALSE(account.exceeds(above));
    pools.clear();
}

TEST_CASE("a growth that another thread is charged for is no growth above the bound") {
    Account account(&ask);
    account.set_bound(0, 64 * mib);
    took(account, charge(0, Kind::pool), 7);
    pools[7] = {32 * mib, 0};
    CHECK(account.used(0) == 32 * mib);
    CHECK(account.take_growth(7, mib) != 0); // under way
    const uint64_t idle = account.take_growth(7, mib);
    REQUIRE(account.may_exceed(idle));
    pools[7] = {64 * mib, 0};
    CHECK_FALSE(account.exceeds(idle));
    pools[7] = {96 * mib, 0};
    CHECK_FALSE(account.exceeds(account.take_growth(7, mib))); // grown before
    pools.clear();
}

TEST_CASE("a tracked pool is told by its number with what it has reserved, until it ends") {
    Account account(&ask);
    constexpr uint64_t handle = 7, number = 3;
    const uint64_t pool = took(account, {0, Holder::program, Kind::pool, 0, number}, handle);
    took(account, charge(0, Kind::pool), 8);
    pools[handle] = {64 * mib, 33 * mib};
    CHECK(account.tracked_pools(0) == std::map<uint64_t, uint64_t>{{number, 64 * mib}});
    CHECK(account.tracked_pools(1).empty());
    uint64_t tracked = 7;
    CHECK(account.give(account.take_growth(handle, mib), &tracked));
    CHECK(tracked == 0); // the pool goes on
    CHECK(account.give(pool, &tracked));
    CHECK(tracked == number);
    CHECK(account.tracked_pools(0).empty());
    pools.clear();
}

TEST_CASE("two threads that let a pool grow at once are charged for both") {
    Account account(&ask);
    account.set_bound(0, 64 * mib);
    took(account, charge(0, Kind::pool), 7);
    CHECK(account.take_growth(7, mib) != 0);
    CHECK(account.take_growth(7, mib) != 0);
    CHECK(account.take_growth(7, mib) == 0);
}

TEST_CASE("a full bound refuses no pool that has nothing yet, and keeps one that does not end") {
    Account account(&ask);
    account.set_bound(0, 64 * mib);
    took(account, charge(64 * mib));
    took(account, charge(0, Kind::pool), 7);
    pools[7] = {32 * mib, 0};
    CHECK(account.used(0) == 96 * mib); // above, as a pool may be
    took(account, charge(0, Kind::pool), 8);
    account.pool_ends(7); // the driver refuses
    pools[7] = {0, 0};
    CHECK(account.used(0) == 96 * mib);
    account.give(took(account, charge(0, Kind::pool), 9));
    pools[9] = {32 * mib, 0};
    took(account, charge(0, Kind::pool), 9); // known again
    CHECK(account.used(0) == 128 * mib);
    pools.clear();
}

TEST_CASE("without a bound nothing is refused") {
    Account account(&ask);
    CHECK(account.take(charge(UINT64_MAX / 2)) != 0);
    CHECK(account.figures(0).bound == 0);
}

TEST_CASE("a bound's text names each kind of each holder, and no kind that there is none of") {
    Account account(&ask);
    CHECK(limit_text(account.figures(0)) == "");
    account.set_bound(0, 8192 * mib);
    took(account, charge(1024 * mib, Kind::block, Holder::managers));
    took(account, charge(512 * mib, Kind::physical, Holder::managers));
    took(account, charge(256 * mib));
    took(account, charge(64 * mib, Kind::pinned, Holder::managers)); // outside of it
    CHECK(account.cover(1, 0, 128 * mib));
    CHECK(limit_text(account.figures(0)) ==
          "1.88 GiB of EMM_LIMIT's 8.00 GiB used: managers' blocks 1.00 GiB, managers' physical "
          "memory 512.00 MiB, the program's physical memory 256.00 MiB, another copy of libemm "
          "128.00 MiB");
}

TEST_CASE("another copy of libemm counts against the bound, and is no row") {
    Account account(&ask);
    account.set_bound(0, 100 * mib);
    took(account, charge(40 * mib));
    CHECK(account.cover(1, 0, 50 * mib));
    CHECK(account.cover(1, 0, 60 * mib)); // in all
    CHECK_FALSE(account.cover(1, 0, 60 * mib + 1));
    CHECK_FALSE(account.cover(2, 0, 1));
    CHECK(account.take(charge(1)) == 0);
    CHECK(account.figures(0).used == 100 * mib);
    CHECK(account.figures(0).others.copies == 60 * mib);
    CHECK(bounded_sum(account.figures(0).rows[size_t(Holder::program)]) == 40 * mib);
    CHECK(account.others_of(1, 0).copies == 40 * mib);
    account.return_unused(1, 0, 10 * mib, true);
    CHECK(account.others_of(2, 0).copies == 50 * mib);
    CHECK(account.cover(2, 0, 50 * mib));
}
