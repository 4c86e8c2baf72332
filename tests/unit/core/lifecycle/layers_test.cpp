// Behaviour: layers over plugins: who is made, called and given up when; with real files.
#include "core/record/context.h"
#include "unit/answers.h"

#include <emm/emm.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace {

// The lines of the layers of tests/fixtures/layer.c since the last call.
std::vector<std::string> lines;

std::vector<std::string> said() {
    return std::exchange(lines, {});
}

void listen() {
    REQUIRE(emm_set_log_callback(
                EMM_LOG_INFO,
                [](int32_t, const char *text, void *) {
                    const std::string line = text;
                    if (line.find("layer") == line.npos && line.find("plugin") == line.npos &&
                        line.find("driver") == line.npos && line.find(' ') != line.npos) {
                        lines.push_back(line);
                    }
                },
                nullptr) == EMM_OK);
}

void choose(const char *spec) {
    setenv("EMM_PLUGIN_PATH", EMM_TEST_FIXTURES ":" EMM_TEST_PASSTHROUGH, 1);
    expect_ok(emm_set_plugin(spec));
}

emm_context *context_on(const char *spec) {
    choose(spec);
    listen();
    return context_for_device();
}

using Lines = std::vector<std::string>;
const Lines made = {"inner create", "inner initialize", "outer create", "outer initialize"};

} // namespace

TEST_CASE("what is below a layer is made and ready before it, and given up after it") {
    context_on("outer+inner+passthrough");
    CHECK(said() == made);
    REQUIRE(emm_shutdown() == EMM_OK);
    CHECK(said() == Lines{"outer destroy", "inner destroy"});
}

TEST_CASE("a slot that a layer leaves out is that of the next one below which has it") {
    emm_context *const context = context_on("outer+inner+passthrough");
    said();
    emm_deviceptr ptr = 0;
    size_t released = 0;
    REQUIRE(emm_memalloc(context, 1000, EMM_STREAM_UNORDERED, &ptr) == EMM_OK);
    CHECK(said() == Lines{"outer memalloc"});
    REQUIRE(emm_trim(context, 0, &released) == EMM_OK);
    CHECK(said() == Lines{"inner trim"});
    REQUIRE(emm_memfree(context, ptr, 1000, EMM_STREAM_UNORDERED) == EMM_OK);
    CHECK(said() == Lines{"outer memfree"});
    CHECK(stats_of(context).allocations == 1);
}

TEST_CASE("a slot that no layer has is called with the plugin's function and manager") {
    emm_context *const context = context_on("inner+passthrough");
    const emm::loader::Plugin &plugin = context->selection->plugin->bottom();
    CHECK(context->memalloc == plugin.table.memalloc);
    CHECK(context->memfree == plugin.table.memfree);
    CHECK(context->manager == context->managers.made.front());
    CHECK(context->host_manager == context->managers.made.back());
}

TEST_CASE("a layer reaches a slot that the host fills below it, and its pinned memory is counted") {
    emm_context *const context = context_on("inner+good");
    said();
    void *host = nullptr;
    REQUIRE(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
    CHECK(said() == Lines{"inner memhostalloc"});
    CHECK(stats_of(context).host_live_bytes == 4096);
    CHECK(emm_memhostfree(context, host, 1, 0, EMM_STREAM_UNORDERED) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, !ContainsSubstring("inner"));
    CHECK(emm_memhostfree(context, host, 4096, 0, EMM_STREAM_UNORDERED) == EMM_OK);
}

TEST_CASE("pinned memory of a layer's own counts beside what the host hands out below it") {
    emm_context *const context = context_on("pinning+good");
    void *host = nullptr;
    REQUIRE(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
    const emm_stats stats = stats_of(context);
    CHECK(stats.host_live_bytes == 2 * 4096);
    CHECK(stats.host_reserved_bytes == 8192 + 4096);
}

TEST_CASE("a reset goes from the outermost layer down where the plugin has one") {
    emm_context *const context = context_on("outer+inner+passthrough");
    said();
    REQUIRE(emm_context_reset(context) == EMM_OK);
    CHECK(said() == Lines{"outer reset", "inner reset"});
}

TEST_CASE("a plugin without a reset is made anew with its layers") {
    emm_context *const context = context_on("outer+inner+good");
    said();
    REQUIRE(emm_context_reset(context) == EMM_OK);
    Lines expected = {"outer destroy", "inner destroy"};
    expected.insert(expected.end(), made.begin(), made.end());
    CHECK(said() == expected);
}

TEST_CASE("a layer whose create fails is named, and what is below it is given up") {
    choose("layer-create-fails+inner+good");
    listen();
    emm_context *context = nullptr;
    CHECK(emm_context_for_device(0, &context) == EMM_E_NOT_SUPPORTED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("layer ") &&
                                           ContainsSubstring("libemm-layer-create-fails.so: "
                                                             "create failed for device 0") &&
                                           ContainsSubstring("this layer never makes a manager"));
    CHECK(said().back() == "inner destroy");
}

TEST_CASE("a layer that does not get ready is given up first") {
    choose("layer-initialize-fails+inner+good");
    listen();
    emm_context *context = nullptr;
    CHECK(emm_context_for_device(0, &context) == EMM_E_DRIVER);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("initialize failed"));
    CHECK(said().back() == "inner destroy");
}

TEST_CASE("each alternative of a list is a whole stack") {
    context_on("layer-create-fails+good;outer+inner+good");
    const emm_plugin_info info = plugin_info();
    CHECK(std::string(info.name) == "good");
    CHECK(std::string(info.spec) == "outer+inner+good");
    REQUIRE(info.layers[0]);
    REQUIRE(info.layers[1]);
    CHECK(info.layers[2] == nullptr);
    CHECK(std::string(info.layers[0]->name) == "outer");
    CHECK(std::string(info.layers[0]->spec) == "outer");
    CHECK(std::string(info.layers[0]->selected_by) == "emm_set_plugin");
    CHECK(info.layers[0]->layers[0] == nullptr);
    CHECK(std::string(info.layers[1]->name) == "inner");
}

TEST_CASE("a plugin without layers says so") {
    choose("good");
    CHECK(plugin_info().layers[0] == nullptr);
}

TEST_CASE("an error says which layer it came from, and one from below keeps its words") {
    emm_context *const context = context_on("outer+inner+passthrough");
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 666, EMM_STREAM_UNORDERED, &ptr) == EMM_E_DRIVER);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("layer outer, memalloc: "));
    CHECK(emm_memfree(context, 4711, 0, EMM_STREAM_UNORDERED) == EMM_E_NOT_OWNED);
    CHECK_THAT(emm_last_error()->text,
               ContainsSubstring("passthrough") && !ContainsSubstring("outer"));
}

TEST_CASE("a stack has the capabilities that all of it have") {
    choose("outer+passthrough");
    CHECK(plugin_info().capabilities == (EMM_PLUGIN_NEEDS_CURRENT | EMM_PLUGIN_CAPTURE));
}

TEST_CASE("a layer is asked of the device that the plugin leaves") {
    choose("good");
    size_t whole = 0, half = 0;
    REQUIRE(emm_get_device_total(0, &whole) == EMM_OK);
    choose("halves+outer+good");
    REQUIRE(emm_get_device_total(0, &half) == EMM_OK);
    CHECK(half == whole / 2);
}

TEST_CASE("a named pool has layers of its own, and its options are the plugin's") {
    emm_context *const context = context_on("outer+inner+every-option:max=4MiB");
    said();
    emm_context *pool = context_named(context, "weights", "max=2MiB");
    CHECK(said() == made);
    CHECK(pool->selection->spec == "outer+inner+every-option:max=2MiB");
    CHECK(emm_context_named(context, "other", "every=1", &pool) == EMM_E_PLUGIN_SPEC);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("plugin 'every-option' has no option"));
}
