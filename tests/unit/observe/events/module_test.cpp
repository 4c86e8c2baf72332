#include "catch.h"
#include "observe/events/module.h"
#include "observe/events/python_calls.h"
#include "observe/events/rows.h"
#include "observe/text.h"

#include <algorithm>

namespace emm::observe {
namespace {

TEST_CASE("a module is one line whatever its path is, and comes back from it") {
    for (const char *path : {"/plain/lib.so", "/two\nlines\\n.so", "\\", "", "/ends with\n"}) {
        const std::string line = to_line({0x1000, 0x2000, 0x800, path});
        CHECK(std::count(line.begin(), line.end(), '\n') == 1);
        std::string_view text = line;
        const std::optional<Module> module = take_module(text);
        REQUIRE(module);
        CHECK(module->path == path);
        CHECK(module->base == 0x800);
        CHECK(text.empty());
    }
}

TEST_CASE("a caller is one field on one line, whatever its module is called") {
    Locations locations;
    locations.add({0x1000, 0x2000, 0x1000, "/a\n\"b\",\x1b[31m.so"});
    CHECK(locations.of(0x1010, 0) == "\"/a \"\"b\"\",?[31m.so+0x10\"");
}

TEST_CASE("behind a caller are the calls of Python that its record has the number of") {
    Locations locations;
    locations.add({0x1000, 0x2000, 0x1000, "/a.so"});
    locations.add("t.py:1 (f)");
    locations.add("t.py:2 (\"g\")");
    CHECK(locations.of(0x1010, 1) == "/a.so+0x10\tt.py:1 (f)");
    CHECK(locations.of(0x1010, 2) == "\"/a.so+0x10\tt.py:2 (\"\"g\"\")\"");
    CHECK(locations.of(0x1010, 3) == "/a.so+0x10");
}

TEST_CASE("calls of Python are numbered once each, are one line, and stop where there is no room") {
    std::string lines;
    PythonCalls calls([&](const std::string &text) {
        if (text.size() < 100) {
            lines += to_line(text);
        }
        return text.size() < 100;
    });
    const auto frame = [](const char *file, uint32_t line, const char *function) {
        emm_frame made = {};
        made.module = file;
        made.line = line;
        made.function = function;
        return made;
    };
    const std::string wide(5000, 'x');
    const Stack compiled{{frame("/a.so", 0, nullptr)}};
    const Stack first{
        {frame("/a.so", 0, nullptr), frame("t\n\t.py", 7, "f"), frame("t.py", 9, "<module>")}};
    const Stack same = first, large{{frame("t.py", 1, wide.c_str())}};
    CHECK(calls.number_of(compiled) == 0);
    CHECK(calls.number_of(first) == 1);
    CHECK(calls.number_of(same) == 1);
    CHECK(calls.number_of(large) == 0);
    CHECK(python_calls_of(large).size() <= longest_text);
    std::string_view text = lines;
    std::string back;
    REQUIRE(take_python_calls(text, back));
    CHECK(back == "t  .py:7 (f)\tt.py:9 (<module>)");
    std::string_view module = "1000 2000 1000 /python \n";
    CHECK_FALSE(take_python_calls(module, back));
}

} // namespace
} // namespace emm::observe
