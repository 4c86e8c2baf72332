#include "observe/callers/walk.h"

#include "catch.h"

#include <algorithm>
#include <alloca.h>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

using namespace emm::observe;

namespace {

using Addresses = std::vector<uintptr_t>;

// Both ways to tell the callers of this function.
struct Told {
    Addresses quickly, slowly;
};

[[gnu::noinline]] Told tell_callers() {
    Told told;
    told.quickly.resize(200);
    told.slowly.resize(200);
    const Frame frame = frame_here();
    told.quickly.resize(walk(frame, told.quickly.data(), told.quickly.size()));
    told.slowly.resize(walk_slowly(frame.stack_pointer, told.slowly.data(), told.slowly.size()));
    return told;
}

// Frames of many forms, one within the other. `volatile` keeps the compiler from turning them into
// something else.
[[gnu::noinline]] Told through_plain(int depth);

[[gnu::noinline]] Told through_alloca(int depth) {
    auto *const some = static_cast<volatile char *>(alloca(size_t(depth) * 40 + 1));
    some[0] = 1;
    Told told = through_plain(depth - 1);
    some[0] = 2;
    return told;
}

[[gnu::noinline]] Told through_aligned(int depth) {
    alignas(128) volatile char some[256];
    auto *const more = static_cast<volatile char *>(alloca(size_t(depth) * 24 + 1));
    some[0] = 1;
    more[0] = 1;
    Told told = through_alloca(depth);
    some[1] = 2;
    more[0] = some[0];
    return told;
}

[[gnu::noinline]] Told through_large(int depth) {
    volatile char some[100'000];
    some[0] = 1;
    Told told = through_aligned(depth);
    some[1] = some[0];
    return told;
}

Told told_by_comparison;
int compare(const void *, const void *) {
    told_by_comparison = through_alloca(1);
    return 0;
}

[[gnu::noinline]] Told through_library(int depth) {
    int numbers[] = {depth, depth};
    qsort(numbers, 2, sizeof *numbers, &compare); // a frame of the C library
    return told_by_comparison;
}

Told through_plain(int depth) {
    if (depth <= 0) {
        return tell_callers();
    }
    Told told = depth % 3 == 0   ? through_large(depth - 1)
                : depth % 3 == 1 ? through_aligned(depth - 1)
                                 : through_alloca(depth - 1);
    asm volatile("" ::: "memory");
    return told;
}

} // namespace

TEST_CASE("the walk finds the callers that libgcc finds, through frames of every form") {
    for (int depth = 1; depth < 12; depth++) {
        for (int again = 0; again < 3; again++) { // from the code, and from the table
            const Told told = through_plain(depth);
            INFO(depth);
            REQUIRE(told.quickly.size() > size_t(depth));
            CHECK(told.quickly == told.slowly);
        }
    }
}

TEST_CASE("the walk goes through frames of other libraries") {
    const Told told = through_library(2);
    REQUIRE(told.quickly.size() > 4);
    CHECK(told.quickly == told.slowly);
}

TEST_CASE("the walk ends where the thread began") {
    Told told;
    std::thread([&] { told = through_plain(3); }).join();
    REQUIRE(told.quickly.size() > 4);
    CHECK(told.quickly == told.slowly);
}

TEST_CASE("the walk tells no more than is asked for") {
    uintptr_t addresses[3] = {0, 0, 7};
    CHECK(walk(frame_here(), addresses, 2) == 2);
    CHECK(addresses[2] == 7);
    CHECK(walk(frame_here(), addresses, 0) == 0);
}

TEST_CASE("threads walk while the table is cleared") {
    std::atomic<bool> end{false};
    std::thread clearing([&] {
        while (!end) {
            unwind_rules.clear();
        }
    });
    bool same = true;
    for (int round = 0; round < 300; round++) {
        const Told told = through_plain(6);
        same = same && told.quickly == told.slowly;
    }
    end = true;
    clearing.join();
    CHECK(same);
}
