#include "top/top.h"

#include "catch.h"

using namespace emm::tool;
using top::Mode;

TEST_CASE("a terminal gets a screen, and anything else one table") {
    CHECK(top::plan_for({}, true).mode == Mode::screen);
    CHECK(top::plan_for({}, true).count == 0);
    CHECK(top::plan_for({}, false).mode == Mode::tables);
    CHECK(top::plan_for({}, false).count == 1);
}

TEST_CASE("with an interval a pipe gets tables until it is closed, with a count so many") {
    TopOptions options;
    options.interval = 0.5;
    CHECK(top::plan_for(options, false).count == 0);
    CHECK(top::plan_for(options, false).interval == 0.5);
    options.count = 3;
    CHECK(top::plan_for(options, false).count == 3);
    CHECK(top::plan_for(options, true).count == 3);
}

TEST_CASE("--json prints one object, with a count so many") {
    TopOptions options;
    options.json = true;
    options.interval = 0.5;
    CHECK(top::plan_for(options, false).count == 1);
    options.count = 3;
    CHECK(top::plan_for(options, false).count == 3);
    CHECK(top::plan_for(options, true).count == 3);
}

TEST_CASE("what is asked for by name comes on a terminal, too") {
    TopOptions json, prometheus, dump;
    json.json = prometheus.prometheus = true;
    dump.dump = 7;
    dump.json = true;
    CHECK(top::plan_for(json, true).mode == Mode::json);
    CHECK(top::plan_for(prometheus, true).mode == Mode::prometheus);
    CHECK(top::plan_for(dump, true).mode == Mode::dump);
}
