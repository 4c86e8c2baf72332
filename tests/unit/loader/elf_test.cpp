#include "support.h"

#include <tuple>

namespace emm::loader {
namespace {

using Row = std::tuple<std::string, std::string>;

TEST_CASE("a file that is no library for this machine is refused before it is mapped") {
    const auto [name, sentence] = GENERATE(
        Row{"empty", "the file is empty"}, Row{"text", "it is not an ELF file"},
        Row{"cut-in-header", "the file is truncated: expected at least 64 bytes, found 40 bytes"},
        Row{"cut-in-segments", "the file is truncated: expected at least "},
        Row{"class-32", "it was built for another architecture: expected a 64-bit library, found a "
                        "32-bit one"},
        Row{"big-endian", "expected a little-endian library, found another byte order"},
        Row{"object-file",
            "it is of the wrong kind: expected a shared library, found an object file (.o)"},
        Row{"no-segments", "its program headers are damaged: expected 56 bytes each, found 0 of 56 "
                           "bytes"},
        Row{"stray-dynamic", "its dynamic section is damaged: expected an address inside what is "
                             "loaded, found one outside"});
    const observe::ErrorDetail error = refused(fixture(name));
    CHECK(error.code == EMM_E_PLUGIN_UNLOADABLE);
    CHECK(error.stage == "elf");
    CHECK(error.path == fixture(name));
    CHECK(error.tried == std::vector<std::string>{fixture(name)});
    CHECK_THAT(error.text, ContainsSubstring("plugin " + fixture(name) + ": "));
    CHECK_THAT(error.text, ContainsSubstring(sentence));
}

TEST_CASE("another machine's library is refused, and both machines are named") {
    const observe::ErrorDetail error = refused(fixture("other-machine"));
    CHECK_THAT(error.text, ContainsSubstring("it was built for another architecture"));
    CHECK_THAT(error.expected + error.got, ContainsSubstring("x86-64"));
    CHECK_THAT(error.expected + error.got, ContainsSubstring("AArch64"));
}

TEST_CASE("a library without its section headers loads") {
    CHECK(loaded(fixture("cut-after-segments")).plugin->name == "good");
}

TEST_CASE("the GNU build id is read from the file") {
    const std::string &id = loaded(fixture("good")).plugin->build_id;
    CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
    CHECK(id.size() == 40);
}

TEST_CASE("a program is no shared library, and is told how to become one") {
    const observe::ErrorDetail error = refused("/proc/self/exe");
    CHECK(error.stage == "elf");
    CHECK_THAT(error.text, ContainsSubstring("it is of the wrong kind: expected a shared library, "
                                             "found an executable"));
    CHECK(error.hint == "link it with -shared");
}

} // namespace
} // namespace emm::loader
