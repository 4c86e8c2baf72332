#include "observe/callers/track_options.h"

#include "catch.h"

using namespace emm::observe;

namespace {

TrackOptions parsed(const std::string &text) {
    TrackOptions options;
    CHECK(parse_track_options(text, options));
    return options;
}

} // namespace

TEST_CASE("tracking is off unless it is asked for, by library or by stack, whole or sampled") {
    CHECK(parsed("").depth == TrackDepth::none);
    CHECK(parsed("module").depth == TrackDepth::module);
    CHECK(parsed("stack").depth == TrackDepth::stack);
    CHECK(parsed("module").sample == 1);
    CHECK(parsed("stack:sample=1/100").sample == 100);
    CHECK(parsed("module:sample=1/1000000").sample == 1'000'000);
}

TEST_CASE("a spec of tracking that makes no sense is refused, and nothing is tracked") {
    for (const char *text :
         {"modules", "Module", ":", "module:", "stack:sample", "stack:sample=1/0",
          "stack:sample=1/1000001", "stack:sample=2/3", "stack:sample=1/-1", "stack:sample=1/10x",
          "stack:sample=1/99999999999", "1"}) {
        TrackOptions options{TrackDepth::stack, 7};
        CHECK_FALSE(parse_track_options(text, options));
        CHECK(options.depth == TrackDepth::none);
    }
}
