#include "catch.h"
#include "recorded.h"
#include "report/block_table.h"
#include "report/dimension.h"

#include <nlohmann/json.hpp>

using namespace emm::tool;

TEST_CASE("a column has its numbers seven bits a byte, and equal ones once") {
    Column column;
    CHECK(column.text() == "");
    column.add(300); // 0xac 0x02
    column.add(300);
    CHECK(column.text() == "rAI=");
    column.add(5);
    CHECK(column.text() == "rAKsAgU=");
}

TEST_CASE("where there are too many blocks the largest are listed, and the others are counted") {
    Script script;
    for (uint64_t i = 1; i <= 5; i++) {
        script.alloc(i, i, i == 3 ? 7 : i, "", 0x1000 * i);
    }
    script.free(1, 9);
    const Json all = block_table_json(script.history(), {}, true, 5);
    CHECK(all.at("count") == 5);
    CHECK(all.at("left_off") == 0);
    CHECK(all.at("events") == 6);
    CHECK(all.at("first_address") == "0x1000");
    const Json largest = block_table_json(script.history(), {}, true, 2);
    CHECK(largest.at("count") == 2);
    CHECK(largest.at("left_off") == 3);
    CHECK(largest.at("least_size") == 5);
    CHECK(largest.at("columns").at("size") == "BwU=");  // 7 and 5
    CHECK(largest.at("columns").at("event") == "Ag=="); // 2 events behind the one before, twice
    CHECK(block_table_json(script.history(), {}, false, 5).at("first_address").is_null());
}

TEST_CASE("blocks are told apart by the tags of those who asked") {
    Script script;
    script.alloc(1, 1, 8, "/lib/a.so+0x12\t/me/t.py:9 (f)\ttag serve/decode");
    script.alloc(1, 2, 8, "/lib/a.so+0x12\t/me/t.py:9 (f)");
    const Dimension tags = by_tag(script.history(), script.recorded.sites);
    REQUIRE(tags.of.size() == 2);
    CHECK(tags.labels[tags.of[0]] == "serve/decode");
    CHECK(tags.labels[tags.of[1]] == "no tag");
    const Json calls = calls_json(script.recorded.sites, Callers(script.recorded.sites));
    CHECK(calls.at("texts")[calls.at("tag")[1].get<size_t>()] == "serve/decode");
    CHECK(calls.at("frames")[1].size() == 2); // the tag is no frame
}

TEST_CASE("a call site has its frames with their kinds, its caller and its library") {
    Script script;
    script.alloc(1, 1, 8,
                 "/lib/a.so+0x12 (work+0x3)\t/v/site-packages/n.py:5 (empty)\t/me/t.py:9 (f)");
    const Callers callers(script.recorded.sites);
    const Json calls = calls_json(script.recorded.sites, callers);
    const auto text = [&](const Json &number) { return calls.at("texts")[number.get<size_t>()]; };
    CHECK(calls.at("frames")[0].empty()); // the site of unknown callers
    const Json &frames = calls.at("frames")[1];
    REQUIRE(frames.size() == 3);
    CHECK(text(frames[0][0]) == "work in a.so");
    CHECK(text(frames[0][1]) == "/lib/a.so+0x12 (work+0x3)");
    CHECK(text(frames[2][1]) == "/me/t.py:9 (f)");
    CHECK(frames[0][2] == 0);
    CHECK(frames[1][2] == 1);
    CHECK(frames[2][2] == 2);
    CHECK(text(calls.at("caller")[1]) == "t.py:9 (f)");
    CHECK(text(calls.at("library")[1]) == "/lib/a.so");
    CHECK(text(calls.at("tag")[1]) == "no tag");
}
