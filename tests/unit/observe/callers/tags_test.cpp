#include "observe/callers/tags.h"

#include "catch.h"
#include "observe/text.h"

#include <string>

using namespace emm::observe;

namespace {

void begin(const std::string &name) {
    if (!begin_latest_tag(name.c_str())) {
        begin_tag(name.c_str());
    }
}

size_t end_all() {
    size_t count = 0;
    while (end_tag()) {
        count++;
    }
    return count;
}

} // namespace

TEST_CASE("a tag is one for the same names around it, and ends with the one that began last") {
    begin("a");
    const Tag *const a = current_tag();
    begin("b");
    const Tag *const inner = current_tag();
    CHECK(inner->path == "a/b");
    CHECK(inner->outer == a);
    begin("a");
    CHECK(current_tag()->path == "a/b/a");
    CHECK(end_tag());
    CHECK(current_tag() == inner);
    CHECK(end_all() == 2);
    CHECK(current_tag() == nullptr);
    begin("b");
    CHECK(current_tag()->path == "b");
    CHECK(end_all() == 1);
    begin("a");
    begin("b");
    CHECK(current_tag() == inner);
    CHECK(end_all() == 2);
}

TEST_CASE("a long name is shown cut, and two that differ behind what is read are one") {
    const std::string x(longest_tag_read, 'x');
    begin(x);
    const Tag *const first = current_tag();
    CHECK(first->path.size() <= longest_tag);
    CHECK(is_one_line(first->path));
    CHECK(end_tag());
    begin(x + "more");
    CHECK(current_tag() == first);
    CHECK(end_tag());
}

TEST_CASE("tags beyond the bounds have no name, and end all the same") {
    for (uint32_t i = 0; i < deepest_tags; i++) {
        begin("deep");
    }
    const Tag *const deepest = current_tag();
    CHECK(deepest->depth == deepest_tags);
    begin("deeper");
    begin("deep");
    CHECK(current_tag() == deepest);
    CHECK(end_tag());
    CHECK(end_tag());
    CHECK(current_tag() == deepest);
    CHECK(end_all() == deepest_tags);
    for (size_t i = 0; i <= most_tags; i++) {
        begin(std::to_string(i));
        end_tag();
    }
    begin(std::to_string(most_tags) + " is one too many");
    CHECK(current_tag() == nullptr);
    begin("deep"); // within a nameless frame
    CHECK(current_tag() == nullptr);
    CHECK(end_all() == 2);
    begin("deep"); // known before
    CHECK(current_tag() != nullptr);
    CHECK(end_all() == 1);
}
