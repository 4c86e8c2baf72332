#include "catch.h"
#include "replay/pace.h"

using namespace emm::tool;

TEST_CASE("a pause is the recorded gap times the factor") {
    CHECK(RecordedPace(1).next(700, true).pause == 700);
    CHECK(RecordedPace(0.5).next(700, true).pause == 350);
    CHECK(RecordedPace(3).next(0, true).pause == 0);
}

TEST_CASE("work takes as long as the gap, less what its launch costs") {
    CHECK(RecordedPace(1).next(700, true).work == 697);
    CHECK(RecordedPace(0.1).next(700, true).work == 67);
}

TEST_CASE("gaps that are too short for work of their own add up, as do those before calls without "
          "a stream") {
    RecordedPace pace(1);
    CHECK(pace.next(4, true).work == 0);
    CHECK(pace.next(5, true).work == 0);
    CHECK(pace.next(100, false).work == 0);
    CHECK(pace.next(1, true).work == 107);
    CHECK(pace.next(9, true).work == 0);
}

TEST_CASE("a long gap leaves the device idle for a part of it, however it adds up") {
    RecordedPace pace(1);
    CHECK(pace.next(1000000, true).work == 9997);
    CHECK(pace.next(6000, false).work == 0);
    CHECK(pace.next(6000, true).work == 9997);
}
