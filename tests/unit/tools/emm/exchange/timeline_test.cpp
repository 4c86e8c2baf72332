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

TEST_CASE("of very many calls the innermost are told") {
    std::string text = "/a.so+0x1";
    for (int i = 0; i < 40'000; i++) {
        text += "\tt.py:" + std::to_string(i) + " (f)";
    }
    const CallSite site = parts_of(text);
    REQUIRE(site.calls.size() == most_calls);
    CHECK(text_of(site.calls.front()) == "t.py:0 (f)");
}

TEST_CASE("behind a caller are the calls of Python, of which one is the program's own") {
    const char tab = '\t';
    const std::string inside = "/venv/lib/python3.11/site-packages/numba/api.py:3 (require)";
    const auto own = [](const std::string &text) {
        const CallSite site = parts_of(text);
        const PythonCall *const call = own_call(site);
        return call ? text_of(*call) : "none";
    };
    const std::string compiled = "/lib/a.so+0x12 (f(int)+0x3)";
    const CallSite site =
        parts_of(compiled + tab + inside + tab + "/home/me/a (b):c/train.py:12 (step)");
    CHECK((site.file == "/lib/a.so" && site.function == "f(int)+0x3"));
    REQUIRE(site.calls.size() == 2);
    CHECK(site.calls[1].file == "/home/me/a (b):c/train.py");
    CHECK(site.calls[1].line == "12");
    CHECK(site.calls[1].function == "step");
    CHECK(own(compiled) == "none");
    CHECK(own(compiled + tab + inside) == "api.py:3 (require)");
    CHECK(own(compiled + tab + inside + tab + "train.py:12 (<module>)") ==
          "train.py:12 (<module>)");
    CHECK(own(compiled + tab + "<frozen importlib>:1 (f)" + tab + "t.py:2 (g)") == "t.py:2 (g)");
    CHECK(own(compiled + tab + "??:0 (at::empty(int))" + tab + "a.cpp:3 (g)") == "none");
    CHECK(own(compiled + tab + "a.cpp:3 (g)" + tab + inside) == "api.py:3 (require)");
    CHECK(own(compiled + tab + tab + "no call") == "none");
}

TEST_CASE("behind the calls of Python are the tags") {
    const CallSite site = parts_of("/lib/a.so+0x12\tt.py:2 (g)\ttag serve/decode 1");
    CHECK(site.calls.size() == 1);
    CHECK(site.tag == "serve/decode 1");
    CHECK(parts_of("/lib/a.so+0x12\ttag kv").tag == "kv");
    CHECK(parts_of("tag kv").tag.empty()); // a compiled caller is always there
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
