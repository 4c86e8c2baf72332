#include "catch.h"
#include "loader/spec.h"
#include "loader/text.h"
#include "observe/error.h"

#include <tuple>

namespace emm::loader {
namespace {

std::vector<Spec> parsed(const std::string &text) {
    std::vector<Spec> specs;
    INFO(text);
    REQUIRE(parse_specs(text, specs) == EMM_OK);
    return specs;
}

std::string refusal(const std::string &text) {
    std::vector<Spec> specs = {Spec{}};
    INFO(text);
    CHECK(parse_specs(text, specs) == EMM_E_PLUGIN_SPEC);
    CHECK(specs.size() == 1);
    CHECK(observe::last_detail().stage == "parse");
    return observe::last_error()->text;
}

TEST_CASE("a bare name is a spec") {
    const std::vector<Spec> specs = parsed("pool");
    REQUIRE(specs.size() == 1);
    CHECK(specs[0].text == "pool");
    CHECK(specs[0].name == "pool");
    CHECK_FALSE(specs[0].is_path);
    CHECK(specs[0].settings.empty());
}

TEST_CASE("an absolute path is a spec, and may hold blanks") {
    const std::vector<Spec> specs = parsed("/opt/my plugins/mine.so");
    CHECK(specs[0].name == "/opt/my plugins/mine.so");
    CHECK(specs[0].is_path);
}

TEST_CASE("options follow a colon") {
    const std::vector<Spec> specs = parsed("pool:max=8GiB,growth=vmm,label=");
    REQUIRE(specs[0].settings.size() == 3);
    CHECK(specs[0].settings[0].key == "max");
    CHECK(specs[0].settings[0].value == "8GiB");
    CHECK(specs[0].settings[1].key == "growth");
    CHECK(specs[0].settings[1].value == "vmm");
    CHECK(specs[0].settings[2].value.empty());
}

TEST_CASE("a list is tried in order, each spec with its own text and options") {
    const std::vector<Spec> specs = parsed("pool:max=1GiB;/a.so;passthrough");
    REQUIRE(specs.size() == 3);
    CHECK(specs[0].text == "pool:max=1GiB");
    CHECK(specs[1].text == "/a.so");
    CHECK(specs[1].settings.empty());
    CHECK(specs[2].name == "passthrough");
}

TEST_CASE("layers stand before the plugin, the outermost first, each with its own options") {
    const std::vector<Spec> specs = parsed("fault:nth=3,seed=/a+count+pool:max=1GiB;passthrough");
    REQUIRE(specs.size() == 2);
    CHECK(specs[0].text == "fault:nth=3,seed=/a+count+pool:max=1GiB");
    CHECK(specs[0].name == "pool");
    REQUIRE(specs[0].settings.size() == 1);
    CHECK(specs[0].settings[0].value == "1GiB");
    REQUIRE(specs[0].layers.size() == 2);
    CHECK(specs[0].layers[0].text == "fault:nth=3,seed=/a");
    CHECK(specs[0].layers[0].name == "fault");
    CHECK(specs[0].layers[0].settings[1].value == "/a");
    CHECK(specs[0].layers[1].name == "count");
    CHECK(specs[1].layers.empty());
}

TEST_CASE("a layer may stand before a path, and a plus in a path begins no plugin") {
    const std::vector<Spec> specs = parsed("count+/opt/c++/x.so:a=1+2;/opt/c++/y.so");
    CHECK(specs[0].name == "/opt/c++/x.so");
    CHECK(specs[0].is_path);
    CHECK(specs[0].settings[0].value == "1+2");
    REQUIRE(specs[0].layers.size() == 1);
    CHECK(specs[1].name == "/opt/c++/y.so");
    CHECK(specs[1].layers.empty());
}

TEST_CASE("a plus in a value of a bare name is written %2B") {
    const std::vector<Spec> specs = parsed("fault:a=1%2b2+pool:b=3%2B4");
    CHECK(specs[0].layers[0].settings[0].value == "1+2");
    CHECK(specs[0].settings[0].value == "3+4");
}

TEST_CASE("delimiters inside a path or a value are escaped, in either case") {
    const std::vector<Spec> specs = parsed("/a%3Ab%3bc%2Cd%3De%25f.so:x=1%2C2");
    CHECK(specs[0].name == "/a:b;c,d=e%f.so");
    CHECK(specs[0].settings[0].value == "1,2");
}

TEST_CASE("what is encoded is decoded to itself") {
    const std::string odd = "/:;,=%+/%3A.so";
    CHECK(parsed(encode(odd))[0].name == odd);
}

TEST_CASE("a spec that does not parse names the column, what was expected and what was found") {
    using Row = std::tuple<std::string, std::string>;
    const auto [text, sentence] = GENERATE(
        Row{"", "column 1: expected a plugin's name or absolute path, found the end"},
        Row{"pool;", "column 6: expected a plugin's name or absolute path, found the end"},
        Row{";pool", "column 1: expected a plugin's name or absolute path, found ';'"},
        Row{"pool;;a", "column 6: expected a plugin's name or absolute path, found ';'"},
        Row{"pool,a", "column 5: expected ':', ';' or the end after the plugin, found ','"},
        Row{"/a=b", "column 3: expected ':', ';' or the end after the plugin, found '='"},
        Row{"pool:", "column 6: expected an option's name (lower-case letters, digits and '_'), "
                     "found the end"},
        Row{"pool:a=1,", "column 10: expected an option's name"},
        Row{"pool:Max=1", "column 6: expected an option's name (lower-case letters, digits and "
                          "'_'), found 'M'"},
        Row{"pool:max", "column 9: expected '=' and a value after 'max', found the end"},
        Row{"pool:max:1", "column 9: expected '=' and a value after 'max', found ':'"},
        Row{"pool:max=1=2", "column 11: expected ',', ';' or the end after the value, found '='"},
        Row{"pool:max=1:2", "column 11: expected ',', ';' or the end after the value, found ':'"},
        Row{"pool:a=1,a=2", "column 10: expected each option once, found 'a' again"},
        Row{"a%20b", "column 2: expected %3A %3B %2C %3D %25 or %2B, found '%20'"},
        Row{"a%", "column 2: expected %3A %3B %2C %3D %25 or %2B, found '%'"},
        Row{"count+", "column 7: expected a plugin's name or absolute path, found the end"},
        Row{"+pool", "column 1: expected a layer's name, found '+'"},
        Row{"count++pool", "column 7: expected a layer's name, found '+'; inside a path or a "
                           "value, '+' is written %2B"},
        Row{"c++/x.so", "column 3: expected a layer's name, found '+'"},
        Row{"count+;pool", "column 7: expected a plugin's name or absolute path, found ';'"},
        Row{"a=b+pool", "column 2: expected ':' or '+' after the layer, found '='"},
        Row{"fault:nth+pool", "column 10: expected '=' and a value after 'nth', found '+'"},
        Row{"fault:nth=1,nth=2+pool", "column 13: expected each option once, found 'nth' again"},
        Row{"a\nb", "'a b', column 2: expected a printable character, found character 10"});
    CHECK_THAT(refusal(text), ContainsSubstring(sentence));
}

TEST_CASE("a stray delimiter comes with the way to write it") {
    CHECK_THAT(refusal("/a=b"), ContainsSubstring("'='; inside a path or a value, '=' is written "
                                                  "%3D"));
    CHECK_THAT(refusal("pool:max=1:2"), ContainsSubstring("':' is written %3A"));
}

TEST_CASE("a colon after a path that is followed by no option comes with the way to write it") {
    for (const char *text : {"/opt/a:b/libemm-x.so", "/opt/a:B", "/opt/a:b"}) {
        refusal(text);
        CHECK(observe::last_detail().hint == "if the ':' belongs to the path, it is written %3A");
    }
    refusal("pool:b/c");
    CHECK(observe::last_detail().hint.empty());
    refusal("/opt/a:b=1;c:d/e");
    CHECK(observe::last_detail().hint.empty());
}

TEST_CASE("settings alone are what follows the colon") {
    std::vector<Setting> settings;
    REQUIRE(parse_settings("max=8GiB,initial=1GiB", settings) == EMM_OK);
    REQUIRE(settings.size() == 2);
    CHECK(settings[1].key == "initial");
    CHECK(settings[1].value == "1GiB");
}

TEST_CASE("no text is no settings") {
    std::vector<Setting> settings = {{"left", "over"}};
    REQUIRE(parse_settings("", settings) == EMM_OK);
    CHECK(settings.empty());
}

TEST_CASE("settings alone are one list") {
    std::vector<Setting> settings;
    CHECK(parse_settings("max=1;b", settings) == EMM_E_PLUGIN_SPEC);
    CHECK_THAT(observe::last_error()->text,
               ContainsSubstring("column 6: expected ',' or the end after the value, found ';'"));
}

} // namespace
} // namespace emm::loader
