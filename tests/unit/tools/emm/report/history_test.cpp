#include "catch.h"
#include "recorded.h"
#include "trace/builder.h"

using namespace emm::tool;

TEST_CASE("a history has its blocks, and its steps in their order") {
    Script script;
    script.alloc(1, 10, 100).alloc(2, 20, 50).free(1, 30);
    const History &history = script.history();
    REQUIRE(history.blocks.size() == 2);
    REQUIRE(history.steps.size() == 3);
    CHECK(history.is_free(2));
    CHECK(history.time_of(2) == 30);
    CHECK(history.block_of(2).size == 100);
    CHECK(history.blocks[0].first_step == 0);
    CHECK(history.blocks[0].last_step == 2);
    CHECK(history.blocks[1].end == never);
    CHECK(script.recorded.begin == 10);
    CHECK(script.recorded.end == 30);
}

TEST_CASE("a free of what is not live is told and changes nothing") {
    Script script;
    script.alloc(1, 10, 100).free(1, 20);
    CHECK_FALSE(script.builder.freed(1, 30, 0));
    CHECK_FALSE(script.builder.freed(7, 30, 0));
    CHECK(script.history().steps.size() == 2);
}

TEST_CASE("what was dropped has an end and is told from what was freed") {
    Script script;
    script.alloc(1, 10, 100, "", 0, 5).alloc(2, 20, 50).alloc(3, 20, 50).free(2, 30);
    script.drop(1, 40, Drop::reset).drop(3, 50, Drop::context_end);
    const History &history = script.history();
    CHECK(history.blocks[0].end == 40);
    CHECK(history.blocks[0].dropped == Drop::reset);
    CHECK(history.blocks[0].freed_on == history.blocks[0].stream);
    CHECK(history.blocks[1].dropped == Drop::none);
    CHECK(history.blocks[2].dropped == Drop::context_end);
    CHECK(history.drops.by_reset == 1);
    CHECK(history.drops.with_context == 1);
    CHECK_FALSE(script.builder.dropped(1, 60, Drop::reset));
    CHECK(history.steps.size() == 6);
}

TEST_CASE("each device and kind of memory has a history, device memory first") {
    Recorded recorded;
    HistoryBuilder builder(recorded);
    Allocation block;
    block.size = 1000;
    builder.allocated(1, 0, Memory::pinned, 0, 0, block);
    block.size = 10;
    builder.allocated(2, 0, Memory::device, 0, 0, block);
    block.size = 20;
    builder.allocated(3, 1, Memory::device, 0, 0, block);
    builder.finish();
    REQUIRE(recorded.histories.size() == 3);
    CHECK(recorded.histories[0].device == 1);
    CHECK(recorded.histories[1].device == 0);
    CHECK(recorded.histories[2].memory == Memory::pinned);
}

TEST_CASE("histories and marks have a limit, and what is beyond it is counted") {
    Recorded recorded;
    HistoryBuilder builder(recorded);
    Allocation block;
    block.size = 1;
    for (uint64_t device = 0; device < 20; device++) {
        builder.allocated(device, device, Memory::device, 0, 0, block);
    }
    CHECK(recorded.histories.size() == HistoryBuilder::most_histories);
    CHECK(recorded.left_off == 4);
    CHECK_FALSE(builder.freed(19, 0, 0));
    for (size_t i = 0; i < HistoryBuilder::most_marks + 5; i++) {
        builder.marked({0, "Trim", 0, 0, false});
    }
    CHECK(recorded.marks.size() == HistoryBuilder::most_marks);
    CHECK(recorded.mark_count == HistoryBuilder::most_marks + 5);
}

TEST_CASE("time does not go back, and sizes that no memory holds are refused") {
    Script script;
    script.alloc(1, 50, uint64_t(1) << 63).alloc(2, 40, 1);
    CHECK(script.history().blocks[1].begin == 50);
    CHECK_THROWS_AS(script.alloc(3, 60, uint64_t(1) << 63), Malformed);
}

TEST_CASE("streams have their names, and those that are too many share one") {
    Names names;
    CHECK(names.number_of(7) == 0);
    CHECK(names.number_of(never) == 1);
    CHECK(names.number_of(7) == 0);
    CHECK(names.text(0) == "7");
    CHECK(names.text(1) == "none");
    for (uint64_t i = 0; i < Names::most; i++) {
        names.number_of(100 + i);
    }
    CHECK(names.number_of(1) == Names::most);
    CHECK(names.text(Names::most) == "others");
}

TEST_CASE("a part begins with what was live, and keeps the true times of its blocks") {
    Script script;
    script.alloc(1, 10, 100)
        .alloc(2, 20, 7)
        .free(2, 30)
        .alloc(3, 40, 5)
        .free(1, 50)
        .alloc(4, 60, 1);
    const History part = history_in(script.history(), {25, 45});
    CHECK(part.live_before == 2);
    CHECK(part.steps == std::vector<uint32_t>{0, 2, 3, 4});
    CHECK(part.time_of(0) == 25);
    CHECK(part.time_of(3) == 40);
    REQUIRE(part.blocks.size() == 3);
    CHECK(part.blocks[0].begin == 10);
    CHECK(part.blocks[0].end == 50);
    CHECK(part.blocks[0].last_step == no_step);
    CHECK(part.blocks[1].last_step == 2);
    CHECK(history_in(script.history(), {}).steps == script.history().steps);
    CHECK(history_in(script.history(), {70, 80}).blocks.size() == 2); // blocks that are never freed
}
