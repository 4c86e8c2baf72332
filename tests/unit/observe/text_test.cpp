// Texts from elsewhere, as they leave emm.
#include "catch.h"
#include "observe/error.h"
#include "observe/text.h"

#include <cstring>

namespace emm::observe {
namespace {

struct Silent : std::exception {
    const char *what() const noexcept override { return nullptr; }
};

TEST_CASE("a plain text stays as it is, in any language") {
    for (const char *text : {"", "plain", "Größe: 8 MiB", "メモリ不足", "𝄞"}) {
        CHECK(is_one_line(text));
        CHECK(one_line(text) == text);
    }
}

TEST_CASE("line ends and tabs become spaces, other control characters question marks") {
    CHECK(one_line("a\nb\r\tc") == "a b  c");
    CHECK(one_line("\x1b[31mred\x7f") == "?[31mred?");
    CHECK(one_line("x\xc2\x85y\xc2\x9bz") == "x y?z");         // C1
    CHECK(one_line("x\xe2\x80\xa8y\xe2\x80\xaez") == "x y?z"); // a line separator, right to left
    CHECK(one_line(std::string_view("a\0b", 3)) == "a?b");
}

TEST_CASE("bytes that are no UTF-8 become U+FFFD, one by one") {
    const std::string mark = "\xef\xbf\xbd";
    CHECK(one_line("a\xff"
                   "b") == "a" + mark + "b");
    CHECK(one_line("\xc0\xaf") == mark + mark);                       // longer than needed
    CHECK(one_line("\xed\xa0\x80") == mark + mark + mark);            // half of a pair
    CHECK(one_line("\xf4\x90\x80\x80") == mark + mark + mark + mark); // beyond Unicode
    CHECK(one_line("cut \xe2\x82") == "cut " + mark + mark);
}

TEST_CASE("what is too long loses its middle, and no character is cut") {
    const std::string text = "begin " + std::string(1400000, 'x') + " end";
    const std::string line = one_line(text);
    CHECK(line.size() <= longest_text);
    CHECK(line.size() > longest_text / 2);
    CHECK(line.compare(0, 6, "begin ") == 0);
    CHECK(line.substr(line.size() - 4) == " end");
    CHECK_THAT(line, ContainsSubstring(" [...] "));
    for (const std::string unit : {"é", "メ", "𝄞", "\xff", "\n", "\x01"}) {
        std::string many;
        while (many.size() < 10 * longest_text) {
            many += unit;
        }
        CHECK(one_line(many).size() <= longest_text);
        CHECK(is_one_line(one_line(many)));
        CHECK(is_one_line(one_line("a" + many)));
    }
    CHECK(one_line(std::string(longest_text, 'x')) == std::string(longest_text, 'x'));
    CHECK(one_line(std::string(99, 'x') + " end", 100).size() == 100);
    CHECK(one_line(std::string(100, 'x'), 100) == std::string(100, 'x'));
    CHECK(one_line(std::string(90, 'x') + std::string(25, 'y'), 100) ==
          std::string(68, 'x') + " [...] " + std::string(25, 'y')); // a quarter is the end
}

TEST_CASE("every text of an error is one line of UTF-8 of bounded length") {
    const std::string bad = "x\xff\n" + std::string(100000, 'y');
    ErrorDetail detail;
    detail.code = EMM_E_PLUGIN_FAILED;
    detail.text = detail.stage = detail.path = detail.expected = detail.got = detail.hint = bad;
    detail.tried.assign(1000, bad);
    fail(detail);
    const emm_error &error = *last_error();
    for (const char *text :
         {error.text, error.stage, error.path, error.expected, error.got, error.hint}) {
        CHECK(is_one_line(text));
    }
    size_t tried = 0;
    for (; error.tried[tried]; ++tried) {
        CHECK(is_one_line(error.tried[tried]));
    }
    CHECK(tried == 64);
    CHECK(std::string(error.tried[63]) == "and 937 more");
    CHECK(std::string(error.json).find('\n') == std::string::npos);
}

TEST_CASE("a plugin's own words are kept to the rules too") {
    fail_by_plugin(EMM_E_PLUGIN_FAILED, 0, "no\xffne\nleft");
    CHECK(std::string(last_error()->text) == "no\xef\xbf\xbdne left");
    fail_by_plugin(EMM_E_PLUGIN_FAILED, 0, std::string(1 << 20, 'z').c_str());
    CHECK(std::strlen(last_error()->text) <= longest_text);
}

TEST_CASE("an exception without words is quoted as such") {
    CHECK(what_of(Silent()) == "an exception whose what() is NULL");
}

TEST_CASE("one of a kind is told in the singular") {
    CHECK(counted(1, "process") == "1 process");
    CHECK(counted(2, "process") == "2 processes");
    CHECK(counted(0, "block") == "0 blocks");
}

} // namespace
} // namespace emm::observe
