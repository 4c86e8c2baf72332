// Behaviour: the files of a stack of layers, and the refusal of files that are no layers.
#include "support.h"

#include <tuple>

namespace emm::loader {
namespace {

Search fixtures_alone() {
    return search_in(EMM_TEST_FIXTURES);
}

TEST_CASE("each slot of a stack is that of the outermost which fills it") {
    const Selection selection = loaded("outer+inner+good", fixtures_alone());
    const Plugin &stack = *selection.plugin;
    CHECK(stack.name == "outer+inner+good");
    REQUIRE(stack.members.size() == 3);
    CHECK(stack.filler(Slot::memalloc).name == "outer");
    CHECK(stack.filler(Slot::trim).name == "inner");
    CHECK(stack.filler(Slot::create).name == "good");
    CHECK(stack.table.memalloc == stack.members[2]->table.memalloc);
    CHECK(stack.table.create == stack.members[0]->table.create);
    CHECK_FALSE(stack.defaults(Slot::trim));
    CHECK(stack.defaults(Slot::set_access));
    CHECK(stack.bottom().name == "good");
}

TEST_CASE("a layer adds no capability but NEEDS_CURRENT, and what is opaque below it stays so") {
    constexpr uint64_t all = ~EMM_PLUGIN_NEEDS_CURRENT;
    constexpr uint64_t below = EMM_PLUGIN_CACHES | EMM_PLUGIN_CAPTURE;
    CHECK(capabilities_over(below, all) == below);
    CHECK(capabilities_over(below, EMM_PLUGIN_NEEDS_CURRENT | EMM_PLUGIN_CACHES) ==
          (EMM_PLUGIN_NEEDS_CURRENT | EMM_PLUGIN_CACHES));
    CHECK(capabilities_over(EMM_PLUGIN_OPAQUE, 0) == EMM_PLUGIN_OPAQUE);
}

TEST_CASE("below a layer is what it covers, without what emm calls of each by itself") {
    const Selection selection = loaded("outer+inner+good", fixtures_alone());
    const Plugin &stack = *selection.plugin;
    REQUIRE(stack.below.size() == 2);
    CHECK(stack.below[0].memalloc == stack.members[0]->table.memalloc);
    CHECK(stack.below[0].trim == test_defaults().trim);
    CHECK(stack.below[1].trim == stack.members[1]->table.trim);
    CHECK(stack.below[1].create == nullptr);
    CHECK(stack.below[1].reset == nullptr);
    CHECK(stack.below[1].check_options == nullptr);
}

TEST_CASE("the same files are the same stack, whatever their options") {
    const Selection one = loaded("outer+every-option:max=1MiB", fixtures_alone());
    const Selection other = loaded("outer+every-option:max=2MiB", fixtures_alone());
    CHECK(one.plugin == other.plugin);
    CHECK(one.plugin != loaded("every-option", fixtures_alone()).plugin);
}

TEST_CASE("a table of create and destroy is a layer that changes nothing") {
    const Selection selection = loaded("layer-of-nothing+good", fixtures_alone());
    CHECK(selection.plugin->table.memalloc == selection.plugin->bottom().table.memalloc);
    CHECK(selection.plugin->defaulted == selection.plugin->bottom().defaulted);
}

TEST_CASE("a file that is no layer is refused as one, in a sentence that says layer") {
    using Row = std::tuple<const char *, emm_status, const char *>;
    const auto [name, code, sentence] = GENERATE(
        Row{"good", EMM_E_PLUGIN_UNLOADABLE,
            "it is a plugin: expected a layer before the '+'; only the last name"},
        Row{"no-entry", EMM_E_PLUGIN_UNLOADABLE,
            "it is not an emm layer: it does not export emm_layer_entry_v1"},
        Row{"layer-only-entry-v2", EMM_E_PLUGIN_VERSION,
            "expected major version 1 (emm_layer_entry_v1), found only major version 2"},
        Row{"layer-major-2", EMM_E_PLUGIN_VERSION,
            "expected major version 1, found major version 2"},
        Row{"layer-minor-1", EMM_E_PLUGIN_VERSION,
            "expected minor version 2 or later, found minor version 1"},
        Row{"layer-cut-table", EMM_E_PLUGIN_INVALID, "expected at least 72 bytes, found 64"},
        Row{"layer-no-create", EMM_E_PLUGIN_INVALID,
            "its table lacks required slots: expected create and destroy, found NULL for create"},
        Row{"layer-no-destroy", EMM_E_PLUGIN_INVALID, "found NULL for destroy"},
        Row{"layer-half-memalloc", EMM_E_PLUGIN_INVALID,
            "its table lacks one slot of a pair: expected memalloc and memfree, or neither, found "
            "memalloc alone"},
        Row{"layer-half-memfree", EMM_E_PLUGIN_INVALID, "found memfree alone"},
        Row{"layer-half-mempin", EMM_E_PLUGIN_INVALID, "found mempin alone"},
        Row{"text", EMM_E_PLUGIN_UNLOADABLE, ""});
    const observe::ErrorDetail error = refused(std::string(name) + "+good", fixtures_alone());
    CHECK(error.code == code);
    CHECK_THAT(error.text,
               ContainsSubstring("layer " + fixture(name) + ": ") && ContainsSubstring(sentence));
}

TEST_CASE("a layer in a plugin's place is told so") {
    CHECK_THAT(refused("inner+outer", fixtures_alone()).text,
               ContainsSubstring("plugin " + fixture("outer") +
                                 ": it is a layer; a layer is named before a plugin"));
}

TEST_CASE("a layer that is not there is looked for as a layer") {
    CHECK_THAT(refused("nosuch+good", fixtures_alone()).text,
               ContainsSubstring("no layer is called 'nosuch'"));
}

} // namespace
} // namespace emm::loader
