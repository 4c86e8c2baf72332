#include "serve/graph_figures.h"

#include "catch.h"

using namespace emm::run;

namespace {

// No more than names here.
const auto *const one = reinterpret_cast<const emm_context *>(0x10);
const auto *const other = reinterpret_cast<const emm_context *>(0x20);

} // namespace

TEST_CASE("memory of graphs is counted once, by context, until a trim finds it freed") {
    GraphFigures figures;
    figures.launched(1, 0x1000, 100, one);
    figures.launched(1, 0x1000, 100, one); // again
    figures.launched(2, 0x2000, 30, one);
    figures.launched(3, 0x3000, 7, other);
    CHECK(figures.in(one).now == 130);
    CHECK(figures.in(other).now == 7);
    figures.trim(one, [](uint64_t, uint64_t id) { return id != 2; });
    CHECK(figures.in(one).now == 30);
    CHECK(figures.in(one).used_high == 130);
    CHECK(figures.in(other).now == 7);
    figures.forget(one);
    CHECK(figures.in(one).now == 0);
    CHECK(figures.in(other).now == 7);
}

TEST_CASE("the most memory of graphs is what there is when it is reset") {
    GraphFigures figures;
    figures.launched(1, 0x1000, 100, one);
    figures.launched(2, 0x2000, 30, one);
    figures.trim(one, [](uint64_t, uint64_t id) { return id == 1; });
    figures.reset_used_high(one);
    CHECK(figures.in(one).used_high == 30);
    CHECK(figures.in(one).reserved_high == 130);
    figures.reset_reserved_high(one);
    CHECK(figures.in(one).reserved_high == 30);
}
