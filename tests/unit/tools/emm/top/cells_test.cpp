#include "top/view.h"

#include "catch.h"

using namespace emm::tool::top;

TEST_CASE("a text is filled or cut to the width, on the side that is wanted") {
    CHECK(fitted("pool", 6, Fit::left) == "pool  ");
    CHECK(fitted("12", 4, Fit::right) == "  12");
    CHECK(fitted("passthrough", 6, Fit::left) == "passt~");
    CHECK(fitted("abc", 3, Fit::left) == "abc");
    CHECK(fitted("abc", 1, Fit::left) == "~");
    CHECK(fitted("abc", 0, Fit::left) == "");
    CHECK(fitted("", 2, Fit::right) == "  ");
}

TEST_CASE("a text that is cut in the middle keeps its beginning and its end") {
    CHECK(fitted("python3 train.py", 16, Fit::middle) == "python3 train.py");
    CHECK(fitted("python3 train.py", 11, Fit::middle) == "pytho~in.py");
    CHECK(fitted("abc", 2, Fit::middle) == "a~");
    CHECK(fitted("abc", 1, Fit::middle) == "~");
    CHECK(fitted("abc", 0, Fit::middle) == "");
    CHECK(fitted("训练abc训练", 6, Fit::middle) == "训~练 ");
    CHECK(fitted("ab", 4, Fit::middle) == "ab  ");
}

TEST_CASE("wide characters count for two columns, and combining ones are left out") {
    CHECK(width_of("训练.py") == 7);
    CHECK(fitted("训练.py", 4, Fit::left) == "训~ ");
    CHECK(fitted("训练.py", 5, Fit::left) == "训练~");
    CHECK(width_of("e\xcc\x81") == 1);
    CHECK(fitted("e\xcc\x81\xcc\x81\xcc\x81x", 2, Fit::left) == "ex");
}

TEST_CASE("escape codes, line ends, bytes that are no UTF-8 and a megabyte do no harm") {
    CHECK(fitted("\033[2Jx", 8, Fit::left) == "?[2Jx   ");
    CHECK(fitted("a\nb", 3, Fit::left) == "a b");
    CHECK(width_of("\xff\xfe") == 2);
    CHECK(fitted(std::string(1 << 20, 'a'), 5, Fit::left) == "aaaa~");
}
