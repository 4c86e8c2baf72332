#include "report/groups.h"

#include "catch.h"
#include "recorded.h"

#include <algorithm>
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

TEST_CASE("a lifetime has the same colour whichever others there are") {
    const auto color_of_freed = [](Script &script) {
        script.alloc(1, 0, 5).free(1, 1000);
        const GroupSet groups = groups_of(script.history(), by_lifetime(script.history()), 0);
        const auto found =
            std::find(groups.labels.begin(), groups.labels.end(), "over 50 % of the time");
        REQUIRE(found != groups.labels.end());
        return groups.colors[static_cast<size_t>(found - groups.labels.begin())];
    };
    Script alone, beside;
    beside.alloc(2, 0, 10);
    CHECK(color_of_freed(alone) == color_of_freed(beside));
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
        return GroupSet{name, std::vector<std::string>(bytes.size(), "x"), {}, bytes, bytes, {}};
    };
    const GroupSet lifetime = set("lifetime", {1, 2}), size = set("size", {1, 1});
    CHECK(leading_of({set("library", {5, 5}), set("caller", {5, 5}), lifetime}) == 0);
    CHECK(leading_of({set("library", {99, 1}), set("caller", {50, 49, 1}), lifetime}) == 1);
    CHECK(leading_of({set("library", {99, 1}), set("caller", {99, 1}), lifetime}) == 0);
    CHECK(leading_of({set("library", {9}), set("caller", {9}), lifetime, size}) == 2);
    CHECK(leading_of({lifetime, size}) == 0);
}

TEST_CASE("a flame graph has what is live at the moment, level by level, largest first") {
    Script script;
    script.alloc(1, 1, 100, "/a.so+0x1 (f+0x1)")
        .alloc(2, 2, 100, "/a.so+0x2 (f+0x2)")
        .alloc(3, 3, 30, "/a.so+0x3 (g+0x1)")
        .alloc(4, 4, 500, "/b.so+0x3 (h+0x1)")
        .alloc(5, 5, 900, "/b.so+0x3 (h+0x1)")
        .free(5, 6);
    const History &history = script.history();
    const Dimension libraries = by_library(history, script.recorded.sites);
    const Dimension callers = by_caller(history, script.recorded.sites);
    const Dimension sizes = by_size(history, 5);
    const FlameNode root = flame_of(history, {&libraries, &callers, &sizes}, 5);
    CHECK(root.bytes == 730);
    CHECK(root.blocks == 4);
    REQUIRE(root.children.size() == 2);
    CHECK(root.children[0].name == "/b.so");
    CHECK(root.children[0].bytes == 500);
    const FlameNode &a = root.children[1];
    CHECK(a.bytes == 230);
    REQUIRE(a.children.size() == 2);
    CHECK(a.children[0].name == "f in a.so");
    CHECK(a.children[0].blocks == 2);
    REQUIRE(a.children[0].children.size() == 1);
    CHECK(a.children[0].children[0].name == "100 B");
}

TEST_CASE("children that are too many are one, and no byte is lost") {
    Script script;
    for (uint64_t i = 0; i < 100; i++) {
        script.alloc(i, i, i + 1);
    }
    const Dimension sizes = by_size(script.history(), 99);
    const FlameNode root = flame_of(script.history(), {&sizes}, 99);
    REQUIRE(root.children.size() == FlameNode::most_children);
    CHECK(root.children.back().name == "77 others");
    uint64_t sum = 0;
    for (const FlameNode &child : root.children) {
        sum += child.bytes;
    }
    CHECK(sum == 5050);
    CHECK(root.bytes == 5050);
}

TEST_CASE("a flame graph of calls goes as deep as each block's, from the outermost on") {
    Script script;
    script.alloc(1, 1, 100, "/a.so+0x1\tt.py:9 (inner)\tt.py:5 (main)")
        .alloc(2, 2, 40, "/a.so+0x1\tt.py:5 (main)")
        .alloc(3, 3, 7, "/b.so+0x3 (h+0x1)");
    const History &history = script.history();
    const auto calls = call_paths_of(script.recorded.sites);
    REQUIRE(calls);
    const FlameNode root = flame_of_calls(history, *calls, by_size(history, 2), 2);
    CHECK(root.bytes == 147);
    REQUIRE(root.children.size() == 2);
    const FlameNode &main = root.children[0];
    CHECK(main.name == "t.py:5 (main)");
    CHECK(main.bytes == 140);
    REQUIRE(main.children.size() == 2);
    CHECK(main.children[0].name == "t.py:9 (inner)");
    CHECK(main.children[0].children[0].name == "100 B");
    CHECK(main.children[1].name == "40 B");
    CHECK(main.children[1].children.empty());
    CHECK(root.children[1].name == "h in b.so");

    Script compiled;
    compiled.alloc(1, 1, 8, "/a.so+0x1");
    CHECK_FALSE(call_paths_of(compiled.recorded.sites));
}
