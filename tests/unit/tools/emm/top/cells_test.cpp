#include "top/view.h"

#include "catch.h"

using namespace emm::tool::top;

TEST_CASE("a text is filled or cut to the width, on the side that is wanted") {
    CHECK(fitted("pool", 6, false) == "pool  ");
    CHECK(fitted("12", 4, true) == "  12");
    CHECK(fitted("passthrough", 6, false) == "passt~");
    CHECK(fitted("abc", 3, false) == "abc");
    CHECK(fitted("abc", 1, false) == "~");
    CHECK(fitted("abc", 0, false) == "");
    CHECK(fitted("", 2, true) == "  ");
}

TEST_CASE("wide characters count for two columns, and combining ones are left out") {
    CHECK(width_of("训练.py") == 7);
    CHECK(fitted("训练.py", 4, false) == "训~ ");
    CHECK(fitted("训练.py", 5, false) == "训练~");
    CHECK(width_of("e\xcc\x81") == 1);
    CHECK(fitted("e\xcc\x81\xcc\x81\xcc\x81x", 2, false) == "ex");
}

TEST_CASE("escape codes, line ends, bytes that are no UTF-8 and a megabyte do no harm") {
    CHECK(fitted("\033[2Jx", 8, false) == "?[2Jx   ");
    CHECK(fitted("a\nb", 3, false) == "a b");
    CHECK(width_of("\xff\xfe") == 2);
    CHECK(fitted(std::string(1 << 20, 'a'), 5, false) == "aaaa~");
}
