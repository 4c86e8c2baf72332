#include "support.h"

#include <sys/stat.h>
#include <tuple>

namespace emm::loader {
namespace {

std::string text(const char *value) {
    return value ? value : "NULL";
}

TEST_CASE("an option has the value that was set, else its default, else none") {
    const Selection selection = loaded(fixture("every-option") + ":max=1.5GiB,growth=vmm");
    std::vector<std::string> values;
    for (size_t i = 0; selection.plugin->options[i].name; ++i) {
        values.push_back(std::string(selection.plugin->options[i].name) + "=" +
                         text(selection.option_texts[i]));
    }
    CHECK(values == std::vector<std::string>{"label=NULL", "max=1.5GiB", "threads=4", "ratio=0.5",
                                             "trim=0", "growth=vmm"});
}

TEST_CASE("the first choice is the default") {
    const Selection selection = loaded(fixture("every-option"));
    CHECK(text(selection.option_texts[5]) == "segment");
}

TEST_CASE("an unknown option is refused, the known ones are listed and one is suggested") {
    const observe::ErrorDetail error = refused(fixture("every-option") + ":maxx=1");
    CHECK(error.code == EMM_E_PLUGIN_SPEC);
    CHECK(error.stage == "validate");
    CHECK(error.path == fixture("every-option"));
    CHECK_THAT(error.text, ContainsSubstring("plugin 'every-option' has no option 'maxx': expected "
                                             "one of growth, label, max, ratio, threads, trim; "
                                             "did you mean 'max'?"));
    CHECK(error.hint == "did you mean 'max'?");
}

TEST_CASE("a plugin that takes no options says so") {
    CHECK(refused(fixture("good") + ":max=1").expected == "no options");
}

TEST_CASE("a value is checked by its option's kind") {
    using Row = std::tuple<std::string, std::string, std::string>;
    const auto [key, value, expected] =
        GENERATE(Row{"max", "8GB", "a size such as 4096, 64KiB or 1.5GiB"},
                 Row{"threads", "many", "a whole number such as 16"},
                 Row{"ratio", "half", "a decimal number such as 0.5"}, Row{"trim", "yes", "0 or 1"},
                 Row{"growth", "linear", "one of segment, vmm"});
    const observe::ErrorDetail error = refused(fixture("every-option") + ":" + key + "=" + value);
    CHECK(error.code == EMM_E_PLUGIN_SPEC);
    CHECK(error.stage == "validate");
    CHECK_THAT(error.text,
               ContainsSubstring("option '" + key + "' of plugin 'every-option'") &&
                   ContainsSubstring(": expected " + expected + ", found '" + value + "'"));
}

TEST_CASE("a size in the wrong units leads to the right ones") {
    const auto [value, meant] = GENERATE(table<std::string, std::string>({{"1GB", "1GiB"},
                                                                          {"1.5T", "1.5TiB"},
                                                                          {"64 KiB", "64KiB"},
                                                                          {"8gib", "8GiB"},
                                                                          {"512m", "512MiB"}}));
    CHECK_THAT(refused(fixture("every-option") + ":max=" + value).text,
               ContainsSubstring("found '" + value + "'; did you mean '" + meant + "'?"));
}

TEST_CASE("what is no size at all leads nowhere") {
    for (const char *value : {"much", "GB", "1XB", "1.GB", "1GBB"}) {
        const observe::ErrorDetail error = refused(fixture("every-option") + ":max=" + value);
        CHECK(error.text.find("did you mean") == std::string::npos);
        CHECK(error.text.find("too large") == std::string::npos);
    }
}

TEST_CASE("what the plugin itself refuses of its options is refused as they are read") {
    const observe::ErrorDetail error = refused(fixture("least-max") + ":max=1KiB");
    CHECK(error.code == EMM_E_PLUGIN_SPEC);
    CHECK(error.stage == "validate");
    CHECK(error.path == fixture("least-max"));
    CHECK(error.text ==
          "plugin " + fixture("least-max") + ": option max: expected at least 4KiB, found less");
    CHECK(text(loaded(fixture("least-max") + ":max=4KiB").option_texts[1]) == "4KiB");
}

TEST_CASE("a refusal of options that gives no reason, and an exception, name the slot") {
    const observe::ErrorDetail silent = refused(fixture("refuses-options-silently"));
    CHECK(silent.code == EMM_E_PLUGIN_SPEC);
    CHECK_THAT(silent.text, ContainsSubstring(": check_options: "));
    const observe::ErrorDetail thrown = refused(fixture("check-options-throws"));
    CHECK(thrown.code == EMM_E_PLUGIN_EXCEPTION);
    CHECK(thrown.stage == "validate");
    CHECK_THAT(thrown.text,
               ContainsSubstring("check_options failed: expected a status, found a C++ "
                                 "exception: no GPU of the right colour"));
}

TEST_CASE("a size is below 2^63, to the byte") {
    const auto max = [](const std::string &value) {
        return fixture("every-option") + ":max=" + value;
    };
    const std::string largest = "9223372036854775807", unit = "8388607.999999TiB";
    CHECK(text(loaded(max(largest)).option_texts[1]) == largest);
    CHECK(text(loaded(max(unit)).option_texts[1]) == unit);
    CHECK(refused(max("9223372036854775808")).code == EMM_E_PLUGIN_SPEC);
    CHECK(refused(max("92233720368547758070")).code == EMM_E_PLUGIN_SPEC);
    CHECK(refused(max("8388608TiB")).code == EMM_E_PLUGIN_SPEC);
}

TEST_CASE("a number that is too large is called so") {
    const auto [setting, most] = GENERATE(
        table<std::string, std::string>({{"max=99999999999999999999", "a size below 2^63 bytes"},
                                         {"max=99999999999GiB", "a size below 2^63 bytes"},
                                         {"threads=99999999999999999999", "at most 18 digits"}}));
    const observe::ErrorDetail error = refused(fixture("every-option") + ":" + setting);
    CHECK_THAT(error.text, ContainsSubstring("of plugin 'every-option' is too large: expected " +
                                             most + ", found"));
}

TEST_CASE("an option of 100,000 characters makes no text of more than 4 KiB") {
    const observe::ErrorDetail error =
        refused(fixture("every-option") + ":max=" + std::string(100000, '7'));
    CHECK(error.text.size() <= 4096);
    CHECK(error.got.size() <= 4096);
    CHECK_THAT(error.text, ContainsSubstring("is too large"));
}

TEST_CASE("an option that is listed twice is refused") {
    const observe::ErrorDetail error = refused(fixture("option-listed-twice"));
    CHECK(error.code == EMM_E_PLUGIN_INVALID);
    CHECK(error.stage == "validate");
    CHECK_THAT(error.text, ContainsSubstring("option 'max' is listed twice"));
}

TEST_CASE("a default that its own kind does not allow is refused") {
    const observe::ErrorDetail error = refused(fixture("option-bad-default"));
    CHECK_THAT(error.text, ContainsSubstring("option 'max' has a bad default: expected a size such "
                                             "as 4096, 64KiB or 1.5GiB, found '8GB'"));
}

// Linked-in variants of a good plugin, for tests without a file.
emm_plugin table_with_options;

template <int> const emm_plugin *entry(const emm_host *) {
    return &table_with_options;
}

template <int number> emm_plugin_entry entry_with(const emm_option *options) {
    table_with_options = *loaded(fixture("good")).plugin->own;
    table_with_options.options = options;
    return entry<number>;
}

TEST_CASE("an option's name, kind and choices are checked") {
    const auto [option, sentence] =
        GENERATE(std::tuple{emm_option{"Max", nullptr, "", EMM_OPTION_SIZE, 0},
                            std::string("an option has an invalid name")},
                 std::tuple{emm_option{"", nullptr, "", EMM_OPTION_SIZE, 0},
                            std::string("an option has an invalid name")},
                 std::tuple{emm_option{"max", nullptr, "", 8, 0},
                            std::string("option 'max' is of an unknown kind: expected 1 to 7")},
                 std::tuple{emm_option{"max", "a||b", "", EMM_OPTION_CHOICE, 0},
                            std::string("option 'max' has an empty choice")},
                 std::tuple{emm_option{"max", nullptr, "", EMM_OPTION_CHOICE, 0},
                            std::string("expected words such as a|b|c, found NULL")});
    const emm_option list[] = {option, {}};
    CHECK_THAT(refused_entry(entry_with<1>(list)).text, ContainsSubstring(sentence));
}

TEST_CASE("a list of options without an end is not read for ever") {
    static std::vector<std::string> names;
    std::vector<emm_option> list;
    for (int i = 0; i < 300; ++i) {
        names.push_back("option_" + std::to_string(i));
    }
    for (const std::string &name : names) {
        list.push_back({name.c_str(), nullptr, "", EMM_OPTION_TEXT, 0});
    }
    list.push_back({});
    CHECK_THAT(refused_entry(entry_with<2>(list.data())).text,
               ContainsSubstring("its list of options has no end"));
}

TEST_CASE("a kind that only a newer minor knows is passed on unchecked") {
    static const emm_option list[] = {{"future", "?", "", 8, 0}, {}};
    const emm_plugin_entry newer = entry_with<3>(list);
    table_with_options.interface_minor = EMM_PLUGIN_ABI_MINOR + 1;
    const Selection selection = linked_in(newer, "future=whatever");
    CHECK(text(selection.option_texts[0]) == "whatever");
}

TEST_CASE("a library is named by its path, and its file is trusted as a plugin's") {
    static const emm_option list[] = {{"lib", nullptr, "", EMM_OPTION_LIBRARY, 0}, {}};
    const emm_plugin_entry entry = entry_with<4>(list);
    Folder folder;
    const std::string file = folder.copy("good", "libx.so");
    CHECK(text(linked_in(entry, "lib=" + file).option_texts[0]) == file);
    CHECK_THAT(refused_entry(entry, "lib=libx.so").text,
               ContainsSubstring("expected the absolute path of a library, found 'libx.so'"));
    CHECK_THAT(refused_entry(entry, "lib=/opt/$LIB/libx.so").text,
               ContainsSubstring("option 'lib'") && ContainsSubstring("its path has a '$'"));
    REQUIRE(chmod(file.c_str(), 0666) == 0);
    const observe::ErrorDetail error = refused_entry(entry, "lib=" + file);
    CHECK(error.code == EMM_E_PLUGIN_UNTRUSTED);
    CHECK_THAT(error.text, ContainsSubstring("option 'lib'") &&
                               ContainsSubstring(file + ": it is writable by everybody"));
}

} // namespace
} // namespace emm::loader
