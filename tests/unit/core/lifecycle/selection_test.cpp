// How the environment and the program choose the plugin, with real plugin files.
#include "../recorder.h"
#include "catch.h"
#include "fence/asymmetric_fence.h"
#include "parts/threads.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>

namespace {

// Called first in its process: the environment is read once.
void environment_names(const char *specs) {
    setenv("EMM_PLUGIN_PATH", EMM_TEST_FIXTURES, 1);
    setenv("EMM_PLUGIN", specs, 1);
}

} // namespace

TEST_CASE("the plugin that the environment names is in force, and says where it came from") {
    environment_names("good");
    const emm_plugin_info info = plugin_info();
    CHECK(std::string(info.name) == "good");
    CHECK(std::string(info.path) == std::string(EMM_TEST_FIXTURES) + "/libemm-good.so");
    CHECK(std::string(info.selected_by) == "EMM_PLUGIN");
    CHECK(std::string(info.spec) == "good");
    CHECK(info.abi_major == EMM_PLUGIN_ABI_MAJOR);
}

// A fence needs a registered process, and registration is slow once there are threads: those of
// CUDA come with the first context. The thread sanitizer has a thread of its own. A kernel without
// membarrier refuses both.
TEST_CASE("finding the plugin registers a process of one thread for fences") {
    environment_names("good");
    CHECK(emm::asymmetric_fence() != 0);
    const auto threads = std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                                       std::filesystem::directory_iterator());
    plugin_info();
    const bool is_registered = emm::asymmetric_fence() == 0;
    CHECK(is_registered == (threads == 1 && emm::register_asymmetric_fence()));
}

TEST_CASE("what the environment names and does not load is an error, never a fallback") {
    environment_names("nosuchplugin");
    emm_context *context = nullptr;
    CHECK(emm_context_for_device(0, &context) == EMM_E_PLUGIN_NOT_FOUND);
    CHECK(std::string(emm_last_error()->stage) == "resolve");
    CHECK(emm_last_error()->tried[0] != nullptr);
    CHECK_THAT(emm_last_error()->json, ContainsSubstring("\"stage\":\"resolve\""));
}

namespace {

std::string said_with_pages_in(const char *folder) {
    static std::string said;
    setenv("EMM_OOM_REPORT", folder, 1);
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    REQUIRE(emm_set_log_callback(
                EMM_LOG_WARN, [](int32_t, const char *text, void *) { said += text; }, nullptr) ==
            EMM_OK);
    context_for_device();
    return said;
}

} // namespace

TEST_CASE("a program is warned as it begins of a folder for pages that is not there") {
    CHECK_THAT(said_with_pages_in("page:/nowhere"),
               ContainsSubstring("EMM_OOM_REPORT: cannot write to the folder '/nowhere': No such "
                                 "file or directory; "));
}

TEST_CASE("a program is warned as it begins of a file in the place of a folder for pages") {
    CHECK_THAT(said_with_pages_in("page:/proc/self/status"),
               ContainsSubstring("'/proc/self/status': Not a directory; "));
}

TEST_CASE("a program is warned of no folder that takes pages") {
    CHECK(said_with_pages_in("page:/tmp").empty());
}

TEST_CASE("a program that begins with a device is warned of values that variables do not take") {
    static std::string said;
    setenv("EMM_OOM_REPORT", "yes", 1);
    setenv("EMM_IPC_STAGED", "yes", 1);
    setenv("EMM_PLUGN", "pool", 1);
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    REQUIRE(emm_set_log_callback(
                EMM_LOG_WARN, [](int32_t, const char *text, void *) { said += text; }, nullptr) ==
            EMM_OK);
    context_for_device();
    CHECK_THAT(said,
               ContainsSubstring("EMM_OOM_REPORT: expected on, off or page:FOLDER, found 'yes'"));
    CHECK_THAT(said, ContainsSubstring("EMM_IPC_STAGED: expected 0 or 1, found 'yes'"));
    CHECK_THAT(said,
               ContainsSubstring("EMM_PLUGN is not a variable of emm; did you mean 'EMM_PLUGIN'?"));
}

TEST_CASE(
    "EMM_PLUGIN that is set after emm has read it chooses nothing, and a choice from code counts") {
    setenv("EMM_PLUGIN_PATH", EMM_TEST_FIXTURES, 1);
    REQUIRE(emm_set_plugin("good") == EMM_OK);
    setenv("EMM_PLUGIN", "every-option", 1);
    CHECK(std::string(plugin_info().name) == "good");
    CHECK(emm_set_plugin("newer-minor") == EMM_OK);
    CHECK(std::string(plugin_info().name) == "newer-minor");
    CHECK(std::string(plugin_info().selected_by) == "emm_set_plugin");
}

TEST_CASE("a list falls back to the first that loads") {
    environment_names("nosuchplugin;text;good");
    CHECK(std::string(plugin_info().name) == "good");
}

TEST_CASE("a list falls back past a plugin whose create fails") {
    environment_names("create-fails;create-throws;initialize-fails;good");
    emm_context *context = nullptr;
    const emm_status status = emm_context_for_device(0, &context);
    INFO(emm_last_error()->text);
    CHECK(status == EMM_OK);
    CHECK(std::string(plugin_info().name) == "good");
}

TEST_CASE("a list of which nothing serves tells every refusal") {
    environment_names("nosuchplugin;create-fails");
    emm_context *context = nullptr;
    CHECK(emm_context_for_device(0, &context) < EMM_OK);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("none of the 2 plugins") &&
                                           ContainsSubstring("nosuchplugin") &&
                                           ContainsSubstring("create failed"));
}

TEST_CASE("a create that fails once is asked again and then serves") {
    environment_names("create-fails-once");
    emm_context *context = nullptr;
    CHECK(emm_context_for_device(0, &context) < EMM_OK);
    CHECK(std::string(emm_last_error()->stage) == "create");
    CHECK(emm_context_for_device(0, &context) == EMM_OK);
}

TEST_CASE("an exception out of create is told as such") {
    environment_names("create-throws");
    emm_context *context = nullptr;
    CHECK(emm_context_for_device(0, &context) == EMM_E_PLUGIN_EXCEPTION);
    CHECK(std::string(emm_last_error()->stage) == "create");
}

TEST_CASE("an exception out of memalloc is a status, and the program goes on") {
    environment_names("memalloc-throws");
    emm_context *context = context_for_device();
    emm_deviceptr ptr = 7;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_PLUGIN_EXCEPTION);
    CHECK(ptr == 7);
}

namespace {

std::atomic<int> calls_of_entry{0};

const emm_plugin *slow_entry(const emm_host *host) {
    ++calls_of_entry;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return Recorder::entry(host);
}

const emm_plugin *entry_that_chooses_itself(const emm_host *host) {
    ++calls_of_entry;
    return emm_set_plugin_entry(&entry_that_chooses_itself, nullptr) == EMM_E_REENTERED
               ? Recorder::entry(host)
               : nullptr;
}

} // namespace

TEST_CASE("threads that race for a plugin call its entry once, and all have it") {
    std::atomic<int> chosen{0};
    in_threads(8, [&](size_t) { chosen += emm_set_plugin_entry(&slow_entry, nullptr) == EMM_OK; });
    CHECK(chosen == 8);
    CHECK(calls_of_entry == 1);
}

TEST_CASE("an entry that asks for its own plugin gets an error, not a deadlock") {
    CHECK(emm_set_plugin_entry(&entry_that_chooses_itself, nullptr) == EMM_OK);
    CHECK(calls_of_entry == 1);
}

TEST_CASE("a choice from code that does not load leaves the one before in force") {
    setenv("EMM_PLUGIN_PATH", EMM_TEST_FIXTURES, 1);
    REQUIRE(emm_set_plugin("good") == EMM_OK);
    CHECK(emm_set_plugin("nosuchplugin") == EMM_E_PLUGIN_NOT_FOUND);
    CHECK(emm_set_plugin("entry-returns-null") == EMM_E_PLUGIN_FAILED);
    const emm_plugin_info info = plugin_info();
    CHECK(std::string(info.name) == "good");
    CHECK(std::string(info.selected_by) == "emm_set_plugin");
}

TEST_CASE("probing describes a plugin and chooses nothing") {
    setenv("EMM_PLUGIN_PATH", EMM_TEST_FIXTURES, 1);
    auto info = sized<emm_plugin_info>();
    REQUIRE(emm_probe_plugin("every-option", &info) == EMM_OK);
    CHECK(std::string(info.name) == "every-option");
    CHECK(info.options[0].name != nullptr);
    REQUIRE(emm_set_plugin("good") == EMM_OK);
    CHECK(std::string(plugin_info().name) == "good");
}

TEST_CASE("an older caller's shorter struct is filled as far as it goes") {
    environment_names("good");
    constexpr uint32_t older_size = offsetof(emm_plugin_info, version);
    emm_plugin_info info = {};
    info.struct_size = older_size;
    info.version = "untouched";
    REQUIRE(emm_get_plugin(&info) == EMM_OK);
    CHECK(std::string(info.name) == "good");
    CHECK(std::string(info.version) == "untouched");
    CHECK(info.struct_size == older_size);
}
