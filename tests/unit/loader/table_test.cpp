#include "support.h"

#include "loader/mapped.h"

#include <tuple>

namespace emm::loader {
namespace {

TEST_CASE("a plugin of four functions is complete: the host's defaults fill the rest") {
    const Plugin &plugin = *loaded(fixture("good")).plugin;
    CHECK(plugin.name == "good");
    CHECK(plugin.version == "1.0");
    CHECK(plugin.description == "a fixture");
    CHECK(plugin.path == fixture("good"));
    CHECK(plugin.abi_major == EMM_PLUGIN_ABI_MAJOR);
    CHECK(plugin.abi_minor == EMM_PLUGIN_ABI_MINOR);
    for (const Slot own : {Slot::create, Slot::destroy, Slot::memalloc, Slot::memfree}) {
        CHECK_FALSE(plugin.defaults(own));
    }
    CHECK(plugin.defaults(Slot::initialize));
    CHECK(plugin.defaults(Slot::get_stats));
    CHECK(plugin.table.memalloc == plugin.own->memalloc);
    CHECK(plugin.own->get_stats == nullptr);
    CHECK(plugin.table.get_stats == test_defaults().get_stats);
    CHECK(plugin.table.memhostalloc == test_defaults().memhostalloc);
}

TEST_CASE("a newer minor is accepted") {
    CHECK(loaded(fixture("newer-minor")).plugin->abi_minor == EMM_PLUGIN_ABI_MINOR + 1);
}

TEST_CASE("a short table is accepted, and the slots that it lacks are the defaults") {
    const Plugin &plugin = *loaded(fixture("short-table")).plugin;
    CHECK(plugin.own->struct_size == 96);
    CHECK_FALSE(plugin.defaults(Slot::memfree));
    CHECK(plugin.defaults(Slot::memhostalloc));
}

TEST_CASE("half a slot at the end of a short table counts as none") {
    const Plugin &plugin = *loaded(fixture("half-slot-table")).plugin;
    CHECK(plugin.own->struct_size == 100);
    CHECK(plugin.defaults(Slot::memhostalloc));
}

TEST_CASE("a longer table is accepted, and what the host does not know is ignored") {
    const Plugin &plugin = *loaded(fixture("longer-table")).plugin;
    CHECK(plugin.own->struct_size == 256);
    CHECK(plugin.table.struct_size == sizeof(emm_plugin));
}

TEST_CASE("a table of another major is refused with both numbers") {
    const observe::ErrorDetail error = refused(fixture("major-2"));
    CHECK(error.code == EMM_E_PLUGIN_VERSION);
    CHECK(error.stage == "negotiate");
    CHECK_THAT(error.text, ContainsSubstring("another major version of the plugin ABI: expected "
                                             "major version 1, found major version 2"));
}

TEST_CASE("a table cut inside the required slots is refused, and both sizes are named") {
    const auto [name, size] = GENERATE(std::tuple<std::string, std::string>{"cut-table", "88"},
                                       std::tuple<std::string, std::string>{"tiny-table", "4"});
    const observe::ErrorDetail error = refused(fixture(name));
    CHECK(error.code == EMM_E_PLUGIN_INVALID);
    CHECK(error.stage == "negotiate");
    CHECK_THAT(error.text, ContainsSubstring("its table ends inside the required slots"));
    CHECK(error.expected == "at least 96 bytes");
    CHECK(error.got == size);
}

TEST_CASE("a missing required slot is named") {
    const auto [name, slots] =
        GENERATE(table<std::string, std::string>({{"no-create", "create"},
                                                  {"no-destroy", "destroy"},
                                                  {"no-memalloc", "memalloc"},
                                                  {"no-memfree", "memfree"},
                                                  {"no-memory", "memalloc, memfree"}}));
    const observe::ErrorDetail error = refused(fixture(name));
    CHECK(error.code == EMM_E_PLUGIN_INVALID);
    CHECK(error.stage == "validate");
    CHECK(error.got == "NULL for " + slots);
    CHECK_THAT(error.text, ContainsSubstring("its table lacks required slots"));
}

TEST_CASE("half a pair is refused, and both halves are named") {
    const auto [present, missing] =
        GENERATE(table<std::string, std::string>({{"memhostalloc", "memhostfree"},
                                                  {"memhostfree", "memhostalloc"},
                                                  {"mempin", "memunpin"},
                                                  {"memunpin", "mempin"},
                                                  {"memallocmanaged", "memfreemanaged"},
                                                  {"memfreemanaged", "memallocmanaged"},
                                                  {"get_ipc_handle", "release_ipc_handle"},
                                                  {"release_ipc_handle", "get_ipc_handle"}}));
    const observe::ErrorDetail error = refused(fixture("half-" + present));
    CHECK(error.code == EMM_E_PLUGIN_INVALID);
    CHECK(error.stage == "validate");
    CHECK(error.got == present + " alone");
    CHECK_THAT(error.expected, ContainsSubstring(missing));
}

TEST_CASE("a plugin without a name is refused") {
    const observe::ErrorDetail error = refused(fixture("no-name"));
    CHECK(error.code == EMM_E_PLUGIN_INVALID);
    CHECK_THAT(error.text, ContainsSubstring("its name is not valid"));
    CHECK(error.got == "NULL");
}

TEST_CASE("what a table points to has to lie in the plugin, and is not read if it does not") {
    const auto [name, what] = GENERATE(table<std::string, std::string>(
        {{"stray-table", "its table is outside the plugin's data"},
         {"stray-table-heap", "its table is outside the plugin's data"},
         {"stray-table-odd", "its table is outside the plugin's data"},
         {"stray-name", "its name is outside the plugin's data"},
         {"stray-name-heap", "its name is outside the plugin's data"},
         {"stray-version", "its version is outside the plugin's data"},
         {"stray-description", "its description is outside the plugin's data"},
         {"stray-options", "its list of options is outside the plugin's data"},
         {"stray-option-name", "a text of option 1 is outside the plugin's data"},
         {"stray-default", "a text of option 1 is outside the plugin's data"},
         {"stray-help", "a text of option 1 is outside the plugin's data"}}));
    const observe::ErrorDetail error = refused(fixture(name));
    CHECK(error.code == EMM_E_PLUGIN_INVALID);
    CHECK(error.stage == "validate");
    CHECK_THAT(error.text, ContainsSubstring("plugin " + fixture(name) + ": " + what));
}

TEST_CASE("a linked-in plugin's table is not read where nothing is mapped") {
    const emm_plugin_entry entry = [](const emm_host *) {
        return reinterpret_cast<const emm_plugin *>(uintptr_t{0x10});
    };
    CHECK_THAT(refused_entry(entry).text,
               ContainsSubstring("its table is outside the plugin's data"));
    static emm_plugin plugin = {};
    plugin = *loaded(fixture("good")).plugin->own;
    plugin.description = reinterpret_cast<const char *>(uintptr_t{0x10});
    const emm_plugin_entry described = [](const emm_host *) -> const emm_plugin * {
        return &plugin;
    };
    CHECK_THAT(refused_entry(described).text,
               ContainsSubstring("its description is outside the plugin's data"));
}

TEST_CASE("texts are shown as one line of UTF-8, and create gets a default as it was written") {
    const Selection selection = loaded(fixture("untidy"));
    CHECK(selection.plugin->version == "1 2");
    CHECK(selection.plugin->description == "caf\xef\xbf\xbd");
    CHECK(std::string(selection.plugin->options[0].help) == "?[31mred");
    CHECK(std::string(selection.plugin->options[0].default_value) == "one two");
    CHECK(std::string(selection.option_texts[0]) == "one\ntwo");
    CHECK(selection.plugin->table.options == selection.plugin->options.data());
}

TEST_CASE("a text ends within the memory that it lies in") {
    static const char bytes[] = "abcd";
    const auto begin = reinterpret_cast<uintptr_t>(bytes);
    const Mapped whole({{begin, begin + sizeof bytes}}), cut({{begin, begin + 4}});
    CHECK(whole.text(bytes + 1) == "bcd");
    CHECK_FALSE(cut.text(bytes).has_value());
    CHECK_FALSE(cut.text(bytes + 4).has_value());
    CHECK_FALSE(cut.text(nullptr).has_value());
    CHECK(cut.holds(bytes, 4));
    CHECK_FALSE(cut.holds(bytes, 5));
    CHECK_FALSE(cut.holds(bytes + 2, SIZE_MAX));
}

TEST_CASE("a library links what it needs, and what that needs, by name or by file") {
    std::vector<Library> all(5);
    all[0].needed = {"libnothing.so"};
    all[1].needed = {"libb.so.1", "libabsent.so"};
    all[2].soname = "libb.so.1";
    all[2].needed = {"libc.so"};
    all[3].path = "/somewhere/libc.so";
    all[3].needed = {"libb.so.1"};
    all[4].soname = "libnobody.so";
    CHECK(linked(all, 1) == std::vector<size_t>{1, 2, 3});
    CHECK(linked(all, 0) == std::vector<size_t>{0});
}

TEST_CASE("a name is short and in lower case") {
    static emm_plugin plugin = {};
    plugin = *loaded(fixture("good")).plugin->own;
    const std::string bad = GENERATE(std::string(), std::string("My Pool"), std::string("pool\n"),
                                     std::string(65, 'x'));
    plugin.name = bad.c_str();
    const auto entry = [](const emm_host *) -> const emm_plugin * { return &plugin; };
    CHECK_THAT(refused_entry(entry).text, ContainsSubstring("its name is not valid"));
}

TEST_CASE("a plugin whose create or initialize fails still loads") {
    for (const char *name : {"create-fails", "create-fails-silently", "create-fails-once",
                             "initialize-fails", "create-throws", "memalloc-throws"}) {
        CHECK(loaded(fixture(name)).plugin->name == name);
    }
}

} // namespace
} // namespace emm::loader
