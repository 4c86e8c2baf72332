#include "catch.h"
#include "exchange/timeline.h"

using namespace emm::tool;

TEST_CASE("a caller's text has a file and a function, or an offset in place of it") {
    const auto parts = [](const char *text) {
        const CallSite site = parts_of(text);
        return site.file + "|" + site.function;
    };
    CHECK(parts("/lib/a.so+0x12 (f+0x3)") == "/lib/a.so|f+0x3");
    CHECK(parts("/lib/a.so+0x12 (g(int, char)+0x3)") == "/lib/a.so|g(int, char)+0x3");
    CHECK(parts("/lib/a.so+0x12") == "/lib/a.so|0x12");
    CHECK(parts("/a+0xb/c (d)/e.so+0x12 (f+0x3)") == "/a+0xb/c (d)/e.so|f+0x3");
    CHECK(parts("0x1234") == "|0x1234");
    CHECK(parts("") == "|");
}

TEST_CASE("callers are numbered up to a limit, and the rest are nameless") {
    CallSites sites;
    CHECK(sites.number_of("a") == 1);
    CHECK(sites.number_of("b") == 2);
    CHECK(sites.number_of("a") == 1);
    CHECK(sites.number_of("") == 0);
    for (size_t i = 0; i < CallSites::most; i++) {
        sites.number_of(std::to_string(i));
    }
    CHECK(sites.size() == CallSites::most);
    CHECK(sites.number_of("one more") == 0);
    CHECK(sites.text(2) == "b");
}
