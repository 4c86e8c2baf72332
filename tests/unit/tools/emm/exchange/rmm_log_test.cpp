#include "catch.h"
#include "exchange/rmm_log.h"
#include "trace/builder.h"

using namespace emm::tool;

namespace {

std::string refusal_of(std::string_view line) {
    try {
        rmm_event(line);
    } catch (const Malformed &malformed) {
        return malformed.what();
    }
    return "accepted";
}

} // namespace

TEST_CASE("an allocation and a free of every version of RMM are read") {
    for (const char *const line :
         {"7,01:02:03.000004,allocate,0x7f00,1024,0x5", "7,01:02:03:000004,allocate,7f00,1024,5"}) {
        const auto event = rmm_event(line);
        REQUIRE(event);
        CHECK(event->op == Op::alloc);
        CHECK(event->thread == 7);
        CHECK(event->time == ((1 * 60 + 2) * 60 + 3) * 1'000'000ull + 4);
        CHECK(event->address == 0x7f00);
        CHECK(event->size == 1024);
        CHECK(event->stream == 5);
    }
    CHECK(rmm_event("7,01:02:03.000004,free,0x7f00,1024,0x0")->op == Op::free);
}

TEST_CASE("what changed no memory is no event") {
    CHECK_FALSE(rmm_event("7,01:02:03.000004,allocate failure,(nil),1024,0x0"));
    CHECK_FALSE(rmm_event("7,01:02:03.000004,allocate,0x0,0,0x0"));
    CHECK_FALSE(rmm_event("7,01:02:03.000004,free,(nil),0,0x0"));
}

TEST_CASE("a line that RMM did not write is refused without its control characters") {
    CHECK(refusal_of("7,8").find("expected 6 fields, Thread,Time,Action,Pointer,Size,Stream") == 0);
    CHECK(refusal_of("7,01:02:03.000004,free,0x1,1,0x0,9").find("expected 6 fields") == 0);
    CHECK(refusal_of("7,01:02:03.000004,steal,0x1,1,0x0") ==
          "expected allocate, allocate failure or free, found 'steal'");
    CHECK(refusal_of("7,01:02:03.000004,\x1b[2J,0x1,1,0x0") ==
          "expected allocate, allocate failure or free, found '?[2J'");
    CHECK(refusal_of("7,01:02:03.000004,free,0x1,-1,0x0") ==
          "expected a whole number for the size, found '-1'");
    CHECK(refusal_of("7,01:02:03.000004,free,0x1,99999999999999999999,0x0")
              .find("expected a whole number for the size") == 0);
    CHECK(refusal_of("7,noon,free,0x1,1,0x0") ==
          "expected a time such as 15:06:25.123456, found 'noon'");
}
