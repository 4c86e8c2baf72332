// Behaviour: the measured cases, their neighbours and their order; no loop and no thread loses a
// block.
#include "bench/plan.h"
#include "bench/team.h"
#include "bench/works.h"
#include "catch.h"
#include "problem.h"

#include <algorithm>
#include <map>

using namespace emm::tool;

namespace {

std::vector<std::string> told(const Plan &plan) {
    std::vector<std::string> all;
    for (const auto &group : plan.groups) {
        std::string text;
        for (const PlannedMeasurement &planned : group) {
            text += (text.empty() ? "" : " ") + planned.measurement.name + "/" +
                    plan.candidates[planned.candidate].label() + "/" +
                    std::to_string(planned.measurement.threads) + "/" +
                    std::to_string(planned.measurement.size);
        }
        all.push_back(text);
    }
    return all;
}

// Counts blocks that are allocated and not released.
struct CountedMemory {
    using Address = uint64_t;
    std::atomic<int64_t> *live = nullptr;
    std::atomic<int64_t> *most = nullptr;
    Address allocate(size_t) const {
        const int64_t now = ++*live;
        int64_t seen = most->load();
        while (now > seen && !most->compare_exchange_weak(seen, now)) {
        }
        return 1;
    }
    void release(Address, size_t) const { --*live; }
};

Failure failure(const char *message) {
    Problem problem;
    problem.message = message;
    return Failure(problem);
}

// Has a fixed number of bytes; knows its blocks.
struct FullDevice {
    size_t room;
    std::map<uint64_t, size_t> blocks = {};
    uint64_t made = 0;
    size_t taken() const {
        size_t sum = 0;
        for (const auto &[address, size] : blocks) {
            sum += size;
        }
        return sum;
    }
};
struct MemoryOf {
    using Address = uint64_t;
    FullDevice *device;
    Address allocate(size_t size) const {
        if (device->taken() + size > device->room) {
            throw failure("the device is full");
        }
        device->blocks[++device->made] = size;
        return device->made;
    }
    void release(Address address, size_t size) const {
        REQUIRE(device->blocks.at(address) == size);
        device->blocks.erase(address);
    }
};

struct Counts {
    std::atomic<int64_t> live{0}, most{0};
    CountedMemory memory() { return {&live, &most}; }
};

} // namespace

TEST_CASE("everything that is compared with a pair takes turns with it") {
    BenchOptions options;
    options.plugins = {"pool", "async"};
    options.cases = {"pair", "pair_null", "handle"};
    CHECK(told(make_plan(options)) ==
          std::vector<std::string>{"pair/pool/1/256 pair/async/1/256 pair/malloc/1/256 "
                                   "pair/mimalloc/1/256 pair/cuMemAlloc/1/256 "
                                   "pair/cuMemAllocAsync/1/256 pair_null/pool/1/256 "
                                   "pair_null/async/1/256 handle/pool/1/256 "
                                   "handle/async/1/256"});
}

TEST_CASE("bare and vtable take turns, and start nothing else") {
    BenchOptions options;
    options.cases = {"vtable", "bare"};
    const Plan plan = make_plan(options);
    CHECK(plan.candidates.size() == 1);
    CHECK(told(plan) == std::vector<std::string>{"bare/empty/1/256 vtable/empty/1/256"});
}

TEST_CASE("large live sets are measured one after the other") {
    BenchOptions options;
    options.plugins = {"pool", "async"};
    options.cases = {"large"};
    CHECK(told(make_plan(options)) == std::vector<std::string>{"large/pool/1/0", "large/async/1/0",
                                                               "large/cuMemAllocAsync/1/0"});
}

TEST_CASE("a freed block crosses threads only if there are two") {
    BenchOptions options;
    options.plugins = {"pool"};
    options.cases = {"cross"};
    options.threads = {1, 4};
    const Plan plan = make_plan(options);
    CHECK(plan.groups.front().front().measurement.threads == 2);
    CHECK(plan.groups.back().front().measurement.threads == 4);
}

TEST_CASE("sizes apply to the cases that do not draw their own") {
    BenchOptions options;
    options.plugins = {"pool"};
    options.cases = {"pair_raw", "mixed"};
    options.sizes = {64, 128};
    const std::vector<std::string> all = told(make_plan(options));
    CHECK(std::count(all.begin(), all.end(), "pair_raw/pool/1/64") == 1);
    CHECK(std::count(all.begin(), all.end(), "pair_raw/pool/1/128") == 1);
    CHECK(all.size() == 3);
}

TEST_CASE("a live set takes at most the room that it is given") {
    constexpr size_t mib = size_t(1) << 20, room = 4096 * mib;
    FullDevice device{SIZE_MAX};
    ReplaceWork<MemoryOf> work({&device}, 4096, room, mib, 64 * mib, 1);
    CHECK(device.taken() <= room);
    CHECK(device.taken() >= room - 64 * mib);
    work.clean_up();
    CHECK(device.blocks.empty());
}

TEST_CASE("a live set that does not fit is given back") {
    FullDevice device{100'000};
    CHECK_THROWS_AS(ReplaceWork<MemoryOf>({&device}, 100, 0, 4096, 4096, 1), Failure);
    CHECK(device.blocks.empty());
    CHECK_THROWS_AS(HolesWork<MemoryOf>({&device}, 256, 1000, 1), Failure);
    CHECK(device.blocks.empty());
}

TEST_CASE("a replacement that fails leaves no block that is released twice") {
    FullDevice device{SIZE_MAX};
    ReplaceWork<MemoryOf> work({&device}, 10, 0, 4096, 8191, 1);
    device.room = 0;
    CHECK_THROWS_AS(work.run(1), Failure);
    CHECK(device.blocks.size() == 9);
    work.clean_up();
    CHECK(device.blocks.empty());
}

TEST_CASE("every case is run by something") {
    const Plan plan = make_plan({});
    std::map<std::string, int> runs;
    for (const auto &group : plan.groups) {
        for (const PlannedMeasurement &planned : group) {
            runs[planned.measurement.name]++;
        }
    }
    CHECK(runs.size() == bench_cases().size());
}

TEST_CASE("an unknown case is refused with the names of those there are") {
    CHECK_THROWS_WITH(
        find_case("pear"),
        ContainsSubstring("bare, vtable, clock, logged, tracked, tracked_stack, pair, pair_null") &&
            ContainsSubstring("found 'pear'"));
}

TEST_CASE("each loop gives back all that it has taken, and holds what its case says") {
    Counts pair, replace, holes;
    PairWork<CountedMemory>(pair.memory(), 256).run(100);
    CHECK(pair.live == 0);
    CHECK(pair.most == 1);

    ReplaceWork<CountedMemory> mixed(replace.memory(), 1000, 0, 256, 65'536, 1);
    mixed.run(5000);
    CHECK(replace.live == 1000);
    mixed.clean_up();
    CHECK(replace.live == 0);

    HolesWork<CountedMemory> among(holes.memory(), 256, 500, 1);
    CHECK(holes.live == 500);
    CHECK(holes.most == 1000);
    among.run(10);
    among.clean_up();
    CHECK(holes.live == 0);
}

TEST_CASE("threads in a ring free each other's blocks, and none is lost when a round ends") {
    Counts counts;
    const auto ring = std::make_shared<CrossWork<CountedMemory>::Ring>(3);
    {
        Team team(3, [&](uint32_t thread, const std::atomic<bool> &stopping) {
            return std::make_unique<CrossWork<CountedMemory>>(counts.memory(), 256, ring, thread,
                                                              stopping);
        });
        for (int i = 0; i < 5; i++) {
            CHECK(team.round(0.005).mpairs_per_s > 0);
        }
    }
    CHECK(counts.live == 0);
    CHECK(counts.most > 1);
}

TEST_CASE("a round tells the pairs of all its threads, whole batches of them") {
    struct Batches : Work {
        explicit Batches(std::atomic<uint64_t> &all) : all_(all) {}
        uint64_t batch() const override { return 100; }
        void run(uint64_t pairs) override { all_ += pairs; }
        std::atomic<uint64_t> &all_;
    };
    std::atomic<uint64_t> all{0};
    Team team(2,
              [&](uint32_t, const std::atomic<bool> &) { return std::make_unique<Batches>(all); });
    const uint64_t first = team.round(0.001).pairs;
    CHECK(first % 100 == 0);
    CHECK(first > 0);
    CHECK(first + team.round(0.001).pairs == all);
}

TEST_CASE("what a thread throws comes out of the team, while making and while running") {
    struct Broken : Work {
        void run(uint64_t) override { throw failure("full"); }
    };
    Team team(2, [](uint32_t, const std::atomic<bool> &) { return std::make_unique<Broken>(); });
    CHECK_THROWS_WITH(team.round(0.001), "full");
    CHECK_THROWS_WITH(Team(2,
                           [](uint32_t, const std::atomic<bool> &) -> std::unique_ptr<Work> {
                               throw failure("no room");
                           }),
                      "no room");
}
