#include "catch.h"
#include "recorded.h"
#include "report/flame.h"

using namespace emm::tool;

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
