#include "catch.h"
#include "table.h"

#include <sstream>

using namespace emm::tool;

namespace {

Table example() {
    Table table({"plugin", "events", "peak", "ns/event"});
    table.add({"pool:max=8GiB", "1000", "12.0 MiB", "35.1"});
    table.add({"async", "1000", "14.0 MiB", "1234.5"});
    return table;
}

size_t longest_line(const std::string &text) {
    std::istringstream lines(text);
    size_t longest = 0;
    for (std::string line; std::getline(lines, line);) {
        longest = std::max(longest, line.size());
    }
    return longest;
}

} // namespace

TEST_CASE("a table that fits is in one piece, and in a pipe as well") {
    const char *const whole = "plugin         events      peak  ns/event\n"
                              "pool:max=8GiB    1000  12.0 MiB      35.1\n"
                              "async            1000  14.0 MiB    1234.5\n";
    CHECK(example().text(0) == whole);
    CHECK(example().text(41) == whole);
}

TEST_CASE("columns that do not fit follow below, behind the labels again") {
    CHECK(example().text(40) == "plugin         events      peak\n"
                                "pool:max=8GiB    1000  12.0 MiB\n"
                                "async            1000  14.0 MiB\n"
                                "\n"
                                "plugin         ns/event\n"
                                "pool:max=8GiB      35.1\n"
                                "async            1234.5\n");
}

TEST_CASE("a label that leaves no room for another column loses its middle") {
    Table table({"plugin", "events"});
    table.add({"/a/very/long/path/to/libemm-mine.so", "1000"});
    CHECK(table.text(30).find("mine.so") != std::string::npos);
    for (const size_t width : {20, 25, 30, 40, 50, 80}) {
        CHECK(longest_line(table.text(width)) <= width);
    }
}

TEST_CASE("letters beyond ASCII take one column, and none is cut") {
    Table table({"plugin", "n"});
    table.add({"\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4"
               "\u00f6\u00fc\u00e4\u00f6\u00fc",
               "1"});
    table.add({"b", "2"});
    CHECK(table.text(15).find("\u00e4\u00f6\u00fc\u00e4...\u00f6\u00fc\u00e4\u00f6\u00fc  1\n") !=
          std::string::npos);
    CHECK(table.text(0).find("b                   2\n") != std::string::npos);
}

TEST_CASE("a line end in a text makes no further row") {
    Table table({"plugin"});
    table.add({"a\nb"});
    CHECK(table.text(0) == "plugin\na b\n");
}
