#include "catch.h"
#include "recorded.h"
#include "report/address_map.h"

using namespace emm::tool;

namespace {

FreeMemory before_last(const Script &script) {
    const History &history = script.history();
    return free_memory_before(history, addresses_of(history),
                              static_cast<uint32_t>(history.steps.size() - 1));
}

} // namespace

TEST_CASE("free memory belongs to the stream that freed it last") {
    Script script;
    script.alloc(1, 0, 100, "", 1000, 1).alloc(2, 0, 100, "", 1100, 1).alloc(3, 0, 50, "", 1200, 2);
    script.alloc(4, 0, 30, "", 2000, 2).alloc(5, 0, 40, "", 3000, 1);
    script.free(1, 1, 1).free(2, 1, 2).free(3, 1, 2).free(4, 1, never);
    script.alloc(6, 2, 300, "", 9000, 1);
    const FreeMemory memory = before_last(script);
    CHECK(memory.own.bytes == 100);
    CHECK(memory.own.largest == 100);
    CHECK(memory.other.bytes == 150);
    CHECK(memory.other.largest == 150);
    CHECK(memory.unordered.bytes == 30);
}

TEST_CASE("the latest of several blocks at an address decides") {
    Script script;
    script.alloc(1, 0, 300, "", 1000, 1).free(1, 1, 1);
    script.alloc(2, 2, 100, "", 1100, 2).free(2, 3, 2);
    script.alloc(3, 4, 50, "", 1250, 2);
    script.alloc(4, 5, 10, "", 9000, 1);
    const FreeMemory memory = before_last(script);
    CHECK(memory.own.bytes == 150);
    CHECK(memory.own.largest == 100);
    CHECK(memory.other.bytes == 100);
}

TEST_CASE("a piece has gaps that rounding leaves, and no others") {
    Script script;
    script.alloc(1, 0, 100, "", 1000).alloc(2, 0, 100, "", 1128).alloc(3, 0, 100, "", 5000);
    script.free(1, 1).free(2, 1).free(3, 1).alloc(4, 2, 10, "", 9000);
    const FreeMemory memory = before_last(script);
    CHECK(memory.own.bytes == 300);
    CHECK(memory.own.largest == 228);
}
