#include "catch.h"
#include "observe/events/locations.h"
#include "observe/events/module.h"

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
    CHECK(locations.of(0x1010) == "\"/a \"\"b\"\",?[31m.so+0x10\"");
}

} // namespace
} // namespace emm::observe
