#include "say.h"

#include "catch.h"

#include <string>

using namespace emm::run;

namespace {

std::string one_line(std::string text) {
    make_one_line(text.data());
    return text.c_str();
}

} // namespace

TEST_CASE("text is one line that no terminal obeys") {
    CHECK(one_line("") == "");
    CHECK(one_line("/a b/\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") ==
          "/a b/\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    CHECK(one_line("a\nb\tc\rd") == "a b c d");
    CHECK(one_line("\x1b[31m\x07\x7f") == "?[31m??");
    CHECK(one_line("\xc2\x9b"
                   "31m") == "?31m"); // CSI
    CHECK(one_line("a\xc2\x85"
                   "b\xe2\x80\xa8"
                   "c") == "a b c"); // next line, line separator
    CHECK(one_line("a\xe2\x80\xae"
                   "b") == "a?b"); // right to left
}

TEST_CASE("bytes that are no UTF-8 are shown as such, also at the end") {
    CHECK(one_line("\x9b"
                   "31m") == "?31m");
    CHECK(one_line("a\xc3") == "a?");
    CHECK(one_line("a\xf0\x9f\x98") == "a???");
    CHECK(one_line("\xc0\x9b") == "??");           // longer than need be
    CHECK(one_line("\xed\xa0\x80") == "???");      // a half of a pair
    CHECK(one_line("\xf4\x90\x80\x80") == "????"); // beyond Unicode
}
