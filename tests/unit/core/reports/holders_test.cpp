#include "core/reports/holders.h"

#include "../address_plugin.h"
#include "catch.h"
#include "core/tracking/tracking.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unistd.h>

namespace {

// Where the log of a test goes.
class LogFile {
public:
    LogFile() {
        setenv("EMM_LOG", ("error:" + path_).c_str(), 1);
        unlink(path_.c_str());
    }
    ~LogFile() { unlink(path_.c_str()); }
    std::string text() const {
        std::ostringstream text;
        text << std::ifstream(path_).rdbuf();
        return text.str();
    }

private:
    const std::string path_ = "/tmp/emm-holders-" + std::to_string(getpid());
};

emm_context *served(const char *track, const char *report) {
    track ? setenv("EMM_TRACK", track, 1) : unsetenv("EMM_TRACK");
    report ? setenv("EMM_OOM_REPORT", report, 1) : unsetenv("EMM_OOM_REPORT");
    emm_context *context = nullptr;
    REQUIRE(emm_set_plugin_entry(&AddressPlugin::entry, nullptr) == EMM_OK);
    REQUIRE(emm_context_for_device(0, &context) == EMM_OK);
    return context;
}

size_t count_of(const std::string &text, const std::string &part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        count++;
    }
    return count;
}

constexpr size_t too_much = size_t(1) << 41; // for the plugin

} // namespace

TEST_CASE("a report is wanted where allocations are tracked, unless the setting says otherwise") {
    using emm::core::is_report_wanted;
    CHECK_FALSE(is_report_wanted("", false));
    CHECK(is_report_wanted("", true));
    CHECK(is_report_wanted("on", false));
    CHECK_FALSE(is_report_wanted("off", true));
}

TEST_CASE("out of memory writes one report, and the error has it as JSON") {
    const LogFile log;
    emm_context *context = served("module", nullptr);
    emm_deviceptr kept = 0, none = 0;
    REQUIRE(emm_memalloc(context, 4096, EMM_STREAM_LEGACY, &kept) == EMM_OK);
    for (int i = 0; i < 5; i++) { // a program that probes
        CHECK(emm_memalloc(context, too_much, EMM_STREAM_LEGACY, &none) == EMM_E_OUT_OF_MEMORY);
        CHECK((emm_last_error()->report != nullptr) == (i == 0));
        CHECK_THAT(emm_last_error()->text, ContainsSubstring("out of device memory"));
        if (i == 0) {
            const auto told = nlohmann::json::parse(emm_last_error()->report).at("memory");
            CHECK(told.at("request").at("bytes") == too_much);
            CHECK_THAT(told.at("request").at("caller").get<std::string>(),
                       ContainsSubstring("core-tests+0x"));
            CHECK(told.at("tracked").at("libraries").at(0).at("bytes") == 4096);
            CHECK(told.at("tracked").at("callers").size() == 1);
            CHECK(told.at("driver").at("total") > 0);
        }
    }
    CHECK(count_of(log.text(), "out of device memory on device 0") == 1);
    CHECK_THAT(log.text(),
               ContainsSubstring("live by library:") && ContainsSubstring("core-tests"));
}

TEST_CASE("out of memory in a pool at its limit names the pool and its holders alone") {
    const LogFile log;
    setenv("EMM_TRACK", "module", 1);
    const auto limited = [](const emm_host *host) -> const emm_plugin * {
        static emm_plugin table = *AddressPlugin::entry(host);
        table.get_memory_info = [](emm_manager *, size_t *ret_free, size_t *ret_total) {
            *ret_free = 0;
            *ret_total = 64 << 20;
            return emm_status(EMM_OK);
        };
        return &table;
    };
    REQUIRE(emm_set_plugin_entry(limited, nullptr) == EMM_OK);
    emm_context *context = nullptr, *pool = nullptr;
    REQUIRE(emm_context_for_device(0, &context) == EMM_OK);
    REQUIRE(emm_context_named(context, "kv", nullptr, &pool) == EMM_OK);
    emm_deviceptr ptr = 0;
    REQUIRE(emm_memalloc(context, 4096, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    REQUIRE(emm_memalloc(pool, 512, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    CHECK(emm_memalloc(pool, too_much, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
    REQUIRE(emm_last_error()->report);
    const auto told = nlohmann::json::parse(emm_last_error()->report).at("memory");
    CHECK(told.at("request").at("pool") == "kv");
    CHECK(told.at("tracked").at("of_pool") == true);
    CHECK(told.at("tracked").at("libraries").at(0).at("bytes") == 512);
    CHECK_THAT(log.text(), ContainsSubstring("live in pool kv by library:"));
}

TEST_CASE("a report that nothing asks for is not written, and one can be had without tracking") {
    const LogFile log;
    emm_context *context = served(nullptr, nullptr);
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(context, too_much, EMM_STREAM_LEGACY, &none) == EMM_E_OUT_OF_MEMORY);
    CHECK(emm_last_error()->report == nullptr);
    CHECK(log.text().empty());
    emm::core::write_report(emm::core::memory_report_lines());
    CHECK_THAT(log.text(), ContainsSubstring("memory of device 0:"));
    CHECK(emm_last_error()->code == EMM_E_OUT_OF_MEMORY); // as it was
}

TEST_CASE("what was taken from the driver itself has a holder too, until it is given back") {
    const LogFile log;
    emm_context *context = served("module", nullptr);
    uint64_t kept = 0, returned = 0, elsewhere = 0;
    REQUIRE(emm_track_driver_memory(0, 96 << 20, &kept) == EMM_OK);
    REQUIRE(emm_track_driver_memory(0, 32 << 20, &returned) == EMM_OK);
    REQUIRE(emm_track_driver_memory(1, 64 << 20, &elsewhere) == EMM_OK);
    CHECK(emm_untrack_driver_memory(returned) == EMM_OK);
    CHECK(emm_untrack_driver_memory(returned) == EMM_E_NOT_OWNED);
    CHECK(emm_untrack_driver_memory(0) == EMM_OK);
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(context, too_much, EMM_STREAM_LEGACY, &none) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(log.text(), ContainsSubstring("taken from the driver itself, by library:"));
    CHECK_THAT(log.text(), ContainsSubstring("96.00 MiB  100 %          1 allocation ") &&
                               ContainsSubstring("core-tests"));
}

TEST_CASE("without EMM_TRACK nothing taken from the driver is recorded") {
    uint64_t id = 7;
    CHECK(emm_track_driver_memory(0, 1, &id) == EMM_E_NOT_SUPPORTED);
    CHECK(id == 0);
}

TEST_CASE("EMM_OOM_REPORT=page:FOLDER writes the report as a page, too") {
    const LogFile log;
    const std::string folder = "/tmp/emm-pages-" + std::to_string(getpid());
    std::filesystem::create_directory(folder);
    emm_context *context = served(nullptr, ("page:" + folder).c_str());
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(context, too_much, EMM_STREAM_LEGACY, &none) == EMM_E_OUT_OF_MEMORY);
    const std::string path = folder + "/emm-oom-" + std::to_string(getpid()) + "-1.html";
    CHECK_THAT(log.text(), ContainsSubstring("this report as a page: " + path));
    std::ifstream file(path);
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    CHECK(page.rfind("<!DOCTYPE html>", 0) == 0);
    CHECK_THAT(page, ContainsSubstring("<h1>out of device memory on device 0"));
    std::filesystem::remove_all(folder);
}

TEST_CASE("a page that cannot be written is told, and the report is there") {
    const LogFile log;
    emm_context *context = served(nullptr, "page:/nowhere");
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(context, too_much, EMM_STREAM_LEGACY, &none) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(log.text(), ContainsSubstring("out of device memory on device 0"));
    CHECK_THAT(log.text(), ContainsSubstring("EMM_OOM_REPORT: cannot open /nowhere/emm-oom-"));
}

TEST_CASE("EMM_OOM_REPORT=on reports without tracking, and says how callers are told") {
    const LogFile log;
    emm_context *context = served(nullptr, "on");
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(context, too_much, EMM_STREAM_LEGACY, &none) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(log.text(), ContainsSubstring("EMM_TRACK=module"));
}

namespace {

// A wrapper around emm_memalloc, as many programs have.
[[gnu::noinline]] void wrapped(emm_context *context) {
    emm_deviceptr ptr = 0;
    emm_memalloc(context, 1024, EMM_STREAM_LEGACY, &ptr);
    asm volatile("" ::: "memory");
}
[[gnu::noinline]] void one_user(emm_context *context) {
    wrapped(context);
    asm volatile("" ::: "memory");
}
[[gnu::noinline]] void another_user(emm_context *context) {
    wrapped(context);
    wrapped(context);
    asm volatile("" ::: "memory");
}

// More calls than a report has callers.
[[gnu::noinline]] void user_of_many_lines(emm_context *context) {
    wrapped(context);
    wrapped(context);
    wrapped(context);
    wrapped(context);
    wrapped(context);
    wrapped(context);
    wrapped(context);
    wrapped(context);
    wrapped(context);
    wrapped(context);
    wrapped(context);
    wrapped(context);
    asm volatile("" ::: "memory");
}

} // namespace

TEST_CASE("all calls of a wrapper within one function are one holder, however many") {
    emm_context *context = served("stack", nullptr);
    user_of_many_lines(context);
    const auto lines = emm::core::leak_report_lines();
    REQUIRE(lines.size() == 2);
    CHECK_THAT(lines[1],
               ContainsSubstring("12 allocations") && ContainsSubstring("user_of_many_lines"));
}

TEST_CASE("what is live at the end is told by caller") {
    emm_context *context = served("stack", nullptr);
    CHECK(emm::core::leak_report_lines().empty());
    for (int i = 0; i < 3; i++) { // in an optimized build three calls
        wrapped(context);
    }
    const auto lines = emm::core::leak_report_lines();
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] == "3.00 KiB still allocated at the end:");
    CHECK_THAT(lines[1], ContainsSubstring("3 allocations") && ContainsSubstring("core-tests"));
}

TEST_CASE("what was live when a context was reset is told by caller, too") {
    setenv("EMM_STATS", "exit", 1);
    emm_context *context = served("module", nullptr);
    wrapped(context);
    REQUIRE(emm_context_reset(context) == EMM_OK);
    const auto lines = emm::core::leak_report_lines();
    REQUIRE(lines.size() == 2);
    CHECK_THAT(lines[0], ContainsSubstring("1.00 KiB still allocated when") &&
                             ContainsSubstring("was reset:"));
    CHECK_THAT(lines[1], ContainsSubstring("1 allocation ") && ContainsSubstring("core-tests"));
}

TEST_CASE("with stack the callers of a wrapper are told apart") {
    emm_context *context = served("stack", nullptr);
    one_user(context);
    another_user(context);
    const auto lines = emm::core::leak_report_lines();
    REQUIRE(lines.size() >= 3);
    size_t count_of_paths = 0;
    for (const std::string &line : lines) {
        count_of_paths += count_of(line, " < ") > 0;
    }
    CHECK(count_of_paths == lines.size() - 1);
    CHECK_THAT(lines[1], ContainsSubstring("wrapped"));
    CHECK_THAT(lines[1], ContainsSubstring(" < (anonymous namespace)::another_user(emm_context*)"));
}
