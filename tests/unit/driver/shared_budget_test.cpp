#include "driver/shared_budget.h"

#include "catch.h"
#include "parts/threads.h"

#include <memory>

using namespace emm::driver;

namespace {

constexpr uint64_t step = 512; // units: 32 MiB

struct Group {
    std::unique_ptr<SharedState> state = std::make_unique<SharedState>();
    SharedDevice &device = *row_of(*state, {1, 2}, 1 << 30);

    Group() { state->members_ever = most_members; }
    uint64_t held_by_all() const {
        uint64_t sum = 0;
        for (unsigned member = 0; member < most_members; member++) {
            sum += units_held(device, member);
        }
        return sum;
    }
};

bool dead() {
    return true;
}
bool alive() {
    return false;
}

} // namespace

TEST_CASE("a member takes a step where there is room, and exactly what it lacks near the bound") {
    CHECK(units_to_take(1, 0, 1 << 20) == step);
    CHECK(units_to_take(1000, 0, 1 << 20) == 1000);
    CHECK(units_to_take(1, 0, 160) == 10);
    CHECK(units_to_take(5, 95, 100) == 5);
    CHECK(units_to_take(6, 95, 100) == 0);
    CHECK(units_to_take(1, 100, 100) == 0);
    CHECK(units_to_take(1, 200, 100) == 0); // the bound has become smaller
}

TEST_CASE("a member gives back what is idle but for a step, once two are") {
    CHECK(units_to_return(2 * step) == 0);
    CHECK(units_to_return(2 * step + 1) == step + 1);
}

TEST_CASE("members have no more than the bound together, and all of it") {
    const Group group;
    unsigned member = 0;
    uint64_t granted = 0;
    for (; hold(group.device, member, 3, 1000); member++) {
        granted += 3;
    }
    CHECK(units_taken(group.device) <= 1000);
    CHECK(group.held_by_all() == units_taken(group.device));
    for (unsigned each = 0; each < member; each++) { // reserves
        give_back(group.device, each, units_held(group.device, each) - 3);
    }
    CHECK(units_taken(group.device) == granted);
    CHECK(hold(group.device, member, 1000 - granted, 1000));
    CHECK_FALSE(hold(group.device, member, 1000 - granted + 1, 1000));
}

TEST_CASE("what a dead member held is taken back once, and a live one keeps its own") {
    const Group group;
    REQUIRE(hold(group.device, 3, 600, 1000));
    CHECK_FALSE(take_back(group.device, 3, alive));
    CHECK(units_taken(group.device) == 600);
    CHECK(take_back(group.device, 3, dead));
    CHECK_FALSE(take_back(group.device, 3, dead));
    CHECK(units_taken(group.device) == 0);
    CHECK(hold(group.device, 3, 1000, 1000)); // the slot's next owner
}

TEST_CASE("a slot that has a new owner is not taken back from it") {
    const Group group;
    REQUIRE(hold(group.device, 3, 600, 1000));
    int asked = 0;
    // The other process has found the old owner dead, and is slower than two members.
    CHECK_FALSE(take_back(group.device, 3, [&] {
        if (asked++ == 0) {
            take_back(group.device, 3, dead);
            hold(group.device, 3, 700, 1000);
            return true;
        }
        return false;
    }));
    CHECK(asked == 2);
    CHECK(units_held(group.device, 3) == 700);
    CHECK(units_taken(group.device) == 700);
}

TEST_CASE("counts are exact after changes of many threads at once") {
    const Group group;
    std::atomic<bool> was_above{false};
    in_threads(4, [&](size_t member) {
        for (unsigned i = 0; i < 20'000; i++) {
            hold(group.device, member, (i * 7 + member) % 400, 1000);
            was_above = was_above || units_taken(group.device) > 1000;
            if (i % 3 == 0) {
                give_back(group.device, member, units_held(group.device, member));
            }
        }
    });
    CHECK_FALSE(was_above);
    CHECK(group.held_by_all() == units_taken(group.device));
}

TEST_CASE("a device has one row, however often it is asked for, and the 33rd has none") {
    const auto own = std::make_unique<SharedState>();
    for (uint64_t i = 0; i < most_shared_devices; i++) {
        SharedDevice *const row = row_of(*own, {i * 2, 7}, 1);
        REQUIRE(row);
        CHECK(row == row_of(*own, {i * 2, 7}, 1));
        CHECK(row == &own->devices[i]);
    }
    CHECK(row_of(*own, {1000, 7}, 1) == nullptr);
}

TEST_CASE("the bound in force is that of the member that joined first and is still in the group") {
    const Group group;
    SharedState &state = *group.state;
    CHECK(bound_in_force(state, group.device).bytes == 0);
    group.device.slots[0].bound = 8;
    group.device.slots[1].bound = 6;
    group.device.slots[2].bound = 4;
    state.members[0].ticket = 9;
    state.members[1].ticket = 2;
    CHECK(bound_in_force(state, group.device).bytes == 6);
    CHECK(bound_in_force(state, group.device).member == 1);
    CHECK_FALSE(bound_in_force(state, group.device).is_of_all);
    state.members[1].ticket = 0;
    CHECK(bound_in_force(state, group.device).bytes == 8);
    CHECK(bound_in_force(state, group.device).is_of_all); // slot 2 has no member
}
