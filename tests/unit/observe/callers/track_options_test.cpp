#include "observe/callers/track_options.h"

#include "catch.h"

using namespace emm::observe;

namespace {

std::string complaint_about(const std::string &text) {
    TrackOptions options{TrackDepth::stack, 7};
    std::string complaint;
    const bool good = parse_track_options(text, options, complaint);
    CHECK((good || options.depth == TrackDepth::none));
    return complaint;
}

TrackOptions parsed(const std::string &text) {
    TrackOptions options;
    std::string complaint;
    CHECK(parse_track_options(text, options, complaint));
    CHECK(complaint.empty());
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

TEST_CASE("a spec of tracking that makes no sense is refused in one sentence") {
    for (const char *text :
         {"modules", "Module", ":", "module:", "stack:sample", "stack:sample=1/0",
          "stack:sample=1/1000001", "stack:sample=2/3", "stack:sample=1/-1", "stack:sample=1/10x",
          "stack:sample=1/99999999999", "1"}) {
        CHECK_THAT(complaint_about(text),
                   ContainsSubstring("EMM_TRACK: expected module or stack") &&
                       ContainsSubstring(std::string("found '") + text + "'"));
    }
    CHECK_THAT(complaint_about("a\n\x1b[31m"),
               !ContainsSubstring("\x1b") && !ContainsSubstring("\n"));
    CHECK(complaint_about(std::string(1'000'000, 'x')).size() < 5000);
}
