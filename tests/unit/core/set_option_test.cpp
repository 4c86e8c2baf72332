// Behaviour: options that change while a manager serves: the host's checks, and the options of a
// new manager.
#include "catch.h"
#include "recorder.h"

#include <string>

namespace {

constexpr emm_option options[] = {{"max", nullptr, "", EMM_OPTION_SIZE, EMM_OPTION_CHANGES},
                                  {"mode", "fast|slow", "", EMM_OPTION_CHOICE, EMM_OPTION_CHANGES},
                                  {"fixed", "1", "", EMM_OPTION_COUNT, 0},
                                  {}};

void (*inside_change)() = [] {};

// A plugin that changes options, and refuses max=1.
emm_context *changing_context(uint32_t minor = EMM_PLUGIN_ABI_MINOR) {
    emm_plugin &table = Recorder::the().table;
    table.interface_minor = minor;
    table.options = options;
    table.set_option = [](emm_manager *, const char *key, const char *text) -> emm_status {
        inside_change();
        Recorder::the().note(std::string(key) + "=" + (text ? text : "NULL"));
        return text && std::string(text) == "1"
                   ? Recorder::the().host->fail(EMM_E_PLUGIN_SPEC, 0, "option max: too little")
                   : EMM_OK;
    };
    emm_context *const context = recorded_context();
    Recorder::the().clear();
    return context;
}

std::string refusal(emm_context *context, const char *key, const char *text, emm_status expected) {
    CHECK(emm_context_set_option(context, key, text) == expected);
    return emm_last_error()->text;
}

using Calls = std::vector<std::string>;

} // namespace

TEST_CASE("an option changes by its text, or to its default") {
    emm_context *const context = changing_context();
    CHECK(emm_context_set_option(context, "max", "64MiB") == EMM_OK);
    CHECK(emm_context_set_option(context, "mode", "slow") == EMM_OK);
    CHECK(emm_context_set_option(context, "max", nullptr) == EMM_OK);
    CHECK(emm_context_set_option(context, "mode", nullptr) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"max=64MiB", "mode=slow", "max=NULL", "mode=fast"});
}

TEST_CASE(
    "what the option table refuses does not reach the plugin, and the reason is one sentence") {
    emm_context *const context = changing_context();
    CHECK_THAT(refusal(context, "maxx", "1MiB", EMM_E_PLUGIN_SPEC),
               ContainsSubstring("plugin 'recorder' has no option 'maxx'") &&
                   ContainsSubstring("did you mean 'max'?"));
    CHECK_THAT(refusal(context, "max", "8GB", EMM_E_PLUGIN_SPEC),
               ContainsSubstring("option 'max' of plugin 'recorder'") &&
                   ContainsSubstring("expected a size"));
    CHECK_THAT(refusal(context, "mode", "quick", EMM_E_PLUGIN_SPEC),
               ContainsSubstring("expected one of fast, slow"));
    CHECK_THAT(refusal(context, "fixed", "2", EMM_E_NOT_SUPPORTED),
               ContainsSubstring("option 'fixed' of plugin 'recorder' cannot change while it "
                                 "serves: expected one of max, mode"));
    CHECK_THAT(refusal(context, nullptr, "2", EMM_E_INVALID_VALUE), ContainsSubstring("key"));
    CHECK(Recorder::the().calls().empty());
    CHECK_THAT(refusal(context, "max", "1", EMM_E_PLUGIN_SPEC),
               ContainsSubstring("option max: too little"));
}

TEST_CASE("a manager that a reset makes anew is told what was changed, and not what was refused") {
    emm_context *const context = changing_context();
    CHECK(emm_context_set_option(context, "mode", "slow") == EMM_OK);
    CHECK(emm_context_set_option(context, "max", "32MiB") == EMM_OK);
    CHECK(emm_context_set_option(context, "max", "1") == EMM_E_PLUGIN_SPEC);
    CHECK(emm_context_set_option(context, "max", "64MiB") == EMM_OK);
    Recorder::the().clear();
    REQUIRE(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().calls() ==
          Calls{"destroy", "create", "initialize", "max=64MiB", "mode=slow"});
}

TEST_CASE("a plugin without the slot, and one of an older minor, change no options") {
    emm_context *const context = changing_context(1); // the memory reserved there does not matter
    CHECK_THAT(refusal(context, "max", "64MiB", EMM_E_NOT_SUPPORTED),
               ContainsSubstring("option 'max' of plugin 'recorder' cannot change"));
    CHECK(Recorder::the().calls().empty());
}

TEST_CASE("a plugin that leaves set_option out says so in a sentence") {
    emm_context *const context = recorded_context();
    CHECK_THAT(refusal(context, "max", "64MiB", EMM_E_NOT_SUPPORTED),
               ContainsSubstring("change options while it serves"));
}

TEST_CASE("a plugin cannot change an option from within its change") {
    emm_context *const context = changing_context();
    static emm_status inside = EMM_OK;
    inside_change = [] {
        inside = emm_context_set_option(Recorder::the().context, "max", "64MiB");
    };
    CHECK(emm_context_set_option(context, "max", "32MiB") == EMM_OK);
    CHECK(inside == EMM_E_REENTERED);
}
