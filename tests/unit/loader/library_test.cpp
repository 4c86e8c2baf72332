#include "support.h"

namespace emm::loader {
namespace {

TEST_CASE("an undefined symbol is refused with the dynamic linker's own words") {
    const observe::ErrorDetail error = refused(fixture("undefined-symbol"));
    CHECK(error.code == EMM_E_PLUGIN_UNLOADABLE);
    CHECK(error.stage == "dlopen");
    CHECK(error.path == fixture("undefined-symbol"));
    CHECK_THAT(error.text, ContainsSubstring("the dynamic linker refused it: undefined symbol: "
                                             "emm_fixture_symbol_without_definition"));
    CHECK_THAT(error.got, ContainsSubstring("emm_fixture_symbol_without_definition"));
    CHECK_THAT(error.hint, ContainsSubstring("ldd -r"));
}

TEST_CASE("a dependency that is not there is named") {
    const observe::ErrorDetail error = refused(fixture("needs-absent"));
    CHECK(error.stage == "dlopen");
    CHECK_THAT(error.text, ContainsSubstring("libfixture-not-there.so.7"));
}

TEST_CASE("a file whose CUDA library is not there may be one for pluggable") {
    CHECK_THAT(refused(fixture("needs-cuda")).hint,
               ContainsSubstring("pluggable:lib=" + fixture("needs-cuda") + ","));
    CHECK_THAT(refused(fixture("needs-absent")).hint, !ContainsSubstring("pluggable"));
}

TEST_CASE("a path that the dynamic linker would rewrite is refused") {
    Folder folder;
    folder.folder("$LIB");
    const observe::ErrorDetail error = refused(folder.copy("good", "$LIB/libemm-good.so"));
    CHECK(error.stage == "dlopen");
    CHECK_THAT(error.text, ContainsSubstring(": its path has a '$'"));
}

TEST_CASE("a library without the entry symbol is no plugin") {
    const observe::ErrorDetail error = refused(fixture("no-entry"));
    CHECK(error.code == EMM_E_PLUGIN_UNLOADABLE);
    CHECK(error.stage == "symbol");
    CHECK(error.text == "plugin " + fixture("no-entry") +
                            ": it is not an emm plugin: it does not export emm_plugin_entry_v1; " +
                            error.hint);
    CHECK_THAT(error.hint, ContainsSubstring("for PyTorch's pair of functions: pluggable:lib=" +
                                             fixture("no-entry") + ",alloc=NAME,free=NAME"));
}

TEST_CASE("an entry symbol that only a dependency exports does not count") {
    const observe::ErrorDetail error = refused(fixture("entry-in-dependency"));
    CHECK(error.code == EMM_E_PLUGIN_UNLOADABLE);
    CHECK(error.stage == "symbol");
    CHECK_THAT(error.text, ContainsSubstring("it is not an emm plugin: its dependency ") &&
                               ContainsSubstring("libfixture-holds-entry.so exports "));
}

TEST_CASE("a plugin with another major's entry symbol only is refused with both numbers") {
    const observe::ErrorDetail error = refused(fixture("only-entry-v2"));
    CHECK(error.code == EMM_E_PLUGIN_VERSION);
    CHECK(error.stage == "negotiate");
    CHECK(error.expected == "major version 1 (emm_plugin_entry_v1)");
    CHECK(error.got == "only major version 2 (emm_plugin_entry_v2)");
    CHECK(error.hint == "use a newer emm");
}

TEST_CASE("an entry symbol that is no function is refused and not called") {
    const auto [name, got] = GENERATE(table<std::string, std::string>(
        {{"entry-is-data", "data"},
         {"entry-is-variable", "data"},
         {"entry-is-thread-local", "a symbol that is thread-local or absolute"},
         {"entry-is-absolute", "a symbol that is thread-local or absolute"}}));
    const observe::ErrorDetail error = refused(fixture(name));
    CHECK(error.code == EMM_E_PLUGIN_UNLOADABLE);
    CHECK(error.stage == "symbol");
    CHECK(error.text ==
          "plugin " + fixture(name) +
              ": its emm_plugin_entry_v1 is of the wrong kind: expected a function, found " + got +
              "; " + error.hint);
}

TEST_CASE("an entry that is chosen at load time is a function") {
    CHECK(loaded(fixture("entry-is-indirect")).plugin->name == "stray");
}

TEST_CASE("an entry that returns NULL silently is told to give a reason") {
    const observe::ErrorDetail error = refused(fixture("entry-returns-null"));
    CHECK(error.code == EMM_E_PLUGIN_FAILED);
    CHECK(error.stage == "symbol");
    CHECK_THAT(error.text,
               ContainsSubstring(
                   "emm_plugin_entry_v1 failed: expected a table, found NULL without a reason"));
    CHECK_THAT(error.hint, ContainsSubstring("host->fail"));
}

TEST_CASE("an earlier plugin's reason is not taken for this one's") {
    test_host().fail(EMM_E_DRIVER, 999, "an older failure");
    CHECK_THAT(refused(fixture("entry-returns-null")).text, ContainsSubstring("without a reason"));
}

TEST_CASE("the reason that an entry gives for returning NULL is passed on, with its code") {
    const observe::ErrorDetail error = refused(fixture("entry-fails"));
    CHECK(error.code == EMM_E_NO_DRIVER);
    CHECK(error.driver_result == 100);
    CHECK_THAT(error.text,
               ContainsSubstring("NULL, because: this fixture needs a driver of its own"));
}

TEST_CASE("a C++ exception that leaves the entry is caught and quoted") {
    const observe::ErrorDetail error = refused(fixture("entry-throws"));
    CHECK(error.code == EMM_E_PLUGIN_EXCEPTION);
    CHECK(error.stage == "symbol");
    CHECK_THAT(error.text, ContainsSubstring("a C++ exception: no GPU of the right colour"));
}

TEST_CASE("anything can be thrown") {
    const observe::ErrorDetail error = refused(fixture("entry-throws-int"));
    CHECK(error.code == EMM_E_PLUGIN_EXCEPTION);
    CHECK_THAT(error.text, ContainsSubstring("not a std::exception"));
}

} // namespace
} // namespace emm::loader
