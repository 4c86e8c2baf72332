#include "report/groups.h"

#include "catch.h"
#include "recorded.h"

#include <numeric>

using namespace emm::tool;

TEST_CASE("groups are those with the most bytes at the peak, and the others are one more") {
    Script script;
    for (uint64_t i = 0; i < 20; i++) {
        script.alloc(i, i, 100 + i, "/l.so+0x1 (f" + std::to_string(i) + "+0x1)");
    }
    const Dimension callers = by_caller(script.history(), script.recorded.sites);
    const GroupSet groups = groups_of(script.history(), callers, 19);
    REQUIRE(groups.labels.size() == GroupSet::most + 1);
    CHECK(groups.labels.front() == "f19 in l.so");
    CHECK(groups.labels.back() == "others");
    CHECK(groups.bytes.front() == 119);
    CHECK(std::accumulate(groups.bytes.begin(), groups.bytes.end(), uint64_t(0)) == 2190);
    CHECK(groups.blocks.back() == 11);
    CHECK(groups.of[19] == 0);
    CHECK(groups.of[0] == GroupSet::most);
}

TEST_CASE("answers that no block has are no group, and few groups have no others") {
    Script script;
    script.alloc(1, 0, 10).alloc(2, 1, 5).free(2, 1000);
    const GroupSet groups = groups_of(script.history(), by_lifetime(script.history()), 1);
    CHECK(groups.labels == std::vector<std::string>{"never freed", "over 50 % of the time"});
    CHECK(groups.bytes == std::vector<uint64_t>{10, 5});
}

TEST_CASE("the stack of a bucket adds up to what is live at its fullest and at its end") {
    Script script;
    for (uint64_t i = 0; i < 300; i++) {
        script.alloc(i, i, 1 + i % 11, i % 2 ? "/a.so+0x1 (f+0x1)" : "/b.so+0x1 (g+0x1)");
        if (i % 3 == 2) {
            script.free(i - 1, i);
        }
    }
    const History &history = script.history();
    const std::vector<Bucket> buckets = buckets_of(history, 16);
    const GroupSet groups =
        groups_of(history, by_caller(history, script.recorded.sites), peak_of(history).step);
    const std::vector<Stack> stacks = stacks_of(history, groups, buckets);
    REQUIRE(stacks.size() == buckets.size());
    for (size_t i = 0; i < buckets.size(); i++) {
        const Stack &stack = stacks[i];
        CHECK(std::accumulate(stack.high.begin(), stack.high.end(), uint64_t(0)) ==
              buckets[i].high);
        CHECK(std::accumulate(stack.end.begin(), stack.end.end(), uint64_t(0)) == buckets[i].end);
    }
}

TEST_CASE("the question that leads is the first whose answers tell blocks apart") {
    const auto set = [](const char *name, std::vector<uint64_t> bytes) {
        return GroupSet{name, std::vector<std::string>(bytes.size(), "x"), bytes, bytes, {}};
    };
    const GroupSet lifetime = set("lifetime", {1, 2}), size = set("size", {1, 1});
    CHECK(leading_of({set("library", {5, 5}), set("caller", {5, 5}), lifetime}) == 0);
    CHECK(leading_of({set("library", {99, 1}), set("caller", {50, 49, 1}), lifetime}) == 1);
    CHECK(leading_of({set("library", {99, 1}), set("caller", {99, 1}), lifetime}) == 0);
    CHECK(leading_of({set("library", {9}), set("caller", {9}), lifetime, size}) == 2);
    CHECK(leading_of({lifetime, size}) == 0);
}
