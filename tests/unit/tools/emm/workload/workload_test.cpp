#include "catch.h"
#include "problem.h"
#include "workload/program.h"
#include "workload/workload.h"

#include <set>

using namespace emm::tool;

namespace {

// FNV-1a over all parts of a trace.
uint64_t digest(const Trace &trace) {
    uint64_t hash = 14695981039346656037u;
    for (const Event &event : trace.events) {
        for (const uint64_t value : {uint64_t(event.op), uint64_t(event.thread),
                                     uint64_t(event.stream), uint64_t(event.block), event.size}) {
            hash = (hash ^ value) * 1099511628211u;
        }
    }
    return hash;
}

} // namespace

TEST_CASE("the same seed gives the same trace, another seed another") {
    for (const Workload &workload : workloads()) {
        INFO(workload.name);
        CHECK(digest(generate(workload.name, 1)) == digest(generate(workload.name, 1)));
        CHECK(digest(generate(workload.name, 1)) != digest(generate(workload.name, 2)));
    }
}

TEST_CASE("the name of a generated trace tells its seed") {
    CHECK(generate("train", 7).name == "train:seed=7");
}

TEST_CASE("every workload is long enough to measure and fits in 12 GiB") {
    for (const Workload &workload : workloads()) {
        INFO(workload.name);
        const Trace trace = generate(workload.name, 1);
        CHECK(trace.events.size() > 8'000);
        CHECK(trace.events.size() < 200'000);
        CHECK(trace.peak_live_bytes < 12 * GiB);
        CHECK(trace.threads >= 2);
        CHECK(trace.streams >= 2);
    }
}

TEST_CASE("a dataframe's results are freed on another stream than they were made on") {
    const Trace trace = generate("dataframe", 1);
    std::vector<uint16_t> stream_of(trace.blocks);
    int crossings = 0;
    for (const Event &event : trace.events) {
        if (event.op == Op::alloc) {
            stream_of[event.block] = event.stream;
        } else if (event.op == Op::free && stream_of[event.block] != event.stream) {
            crossings++;
        }
    }
    CHECK(crossings > 50);
}

TEST_CASE("arrays have sections of deferred clean-up") {
    int sections = 0;
    for (const Event &event : generate("arrays", 1).events) {
        sections += event.op == Op::defer_begin;
    }
    CHECK(sections > 10);
}

TEST_CASE("an unknown workload is refused with the names of those there are") {
    CHECK_THROWS_WITH(generate("trian", 1), "--generate: expected one of train, dataframe, "
                                            "arrays, serve, overlap, found 'trian'");
}

TEST_CASE("random sizes keep to their bounds and reach every doubling between") {
    Random random(3);
    std::set<int> doublings;
    for (int i = 0; i < 10'000; i++) {
        const uint64_t size = random.spread(256, 65'536);
        REQUIRE(size >= 256);
        REQUIRE(size <= 65'536);
        doublings.insert(63 - __builtin_clzll(size));
    }
    CHECK(doublings.size() == 9);
}
