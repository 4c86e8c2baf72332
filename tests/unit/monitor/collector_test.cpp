#include "monitor/collector.h"

#include "../core/recorder.h"
#include "catch.h"
#include "sockets/socket.h"

#include <atomic>
#include <thread>
#include <unistd.h>

using namespace emm::monitor;

namespace {

constexpr int64_t second = 1'000'000'000;

std::atomic<bool> hangs{false};

emm_status get_stats(emm_manager *, emm_stats *ret_stats) {
    Recorder::the().note("get_stats");
    while (hangs) {
        usleep(1000);
    }
    auto stats = sized<emm_stats>();
    stats.live_bytes = 512;
    stats.allocations = 3;
    emm_copy_sized(ret_stats, &stats);
    Recorder::the().note("told");
    return EMM_OK;
}

// Its thread goes on to the end of the process.
Collector &collector() {
    static auto *const the_collector = new Collector;
    return *the_collector;
}

emm_context *told_context() {
    Recorder::the().table.get_stats = &get_stats;
    return recorded_context();
}

void wait_for_call(const char *call, size_t count) {
    for (int i = 0; i < 10000 && Recorder::the().count(call) < count; ++i) {
        usleep(1000);
    }
    REQUIRE(Recorder::the().count(call) >= count);
}

// The collector's thread is in the plugin's function afterwards, until `hangs` is false again.
void let_plugin_hang() {
    hangs = true;
    collector().collect(RequestKind::figures, second / 20);
    wait_for_call("get_stats", 1);
}

} // namespace

TEST_CASE("each context tells its figures, and what the plugin has counted") {
    emm_context *const context = told_context();
    const Collected found = collector().collect(RequestKind::figures, 10 * second);
    CHECK(found.stuck == 0);
    REQUIRE(found.contexts.size() == 1);
    CHECK(found.contexts[0].id == context->id);
    CHECK(found.contexts[0].problem == "");
    REQUIRE(found.contexts[0].stats);
    CHECK(found.contexts[0].stats->live_bytes == 512);
    CHECK(found.contexts[0].stats->allocations == 3);
    CHECK(found.contexts[0].at > 0);
}

TEST_CASE("a plugin that hangs is waited for once, and what is known is the answer until then") {
    told_context();
    let_plugin_hang();
    const Collected first = collector().collect(RequestKind::figures, second / 20);
    CHECK(first.stuck >= second / 20);
    REQUIRE(first.contexts.size() == 1);
    CHECK_FALSE(first.contexts[0].stats);
    CHECK(first.contexts[0].problem == "the plugin has not answered yet");
    CHECK(collector().collect(RequestKind::report, second / 20).stuck > first.stuck);
    CHECK(collector().collect(RequestKind::report, second / 20).report == "");
    CHECK(Recorder::the().count("get_stats") == 1);
    hangs = false;
    wait_for_call("told", 1);
    const Collected later = collector().collect(RequestKind::figures, 10 * second);
    CHECK(later.stuck == 0);
    CHECK(later.contexts[0].stats);
}

TEST_CASE("a context is not given up while its plugin is asked") {
    emm_context *const context = told_context();
    let_plugin_hang();
    std::thread retiring([&] { emm_context_retire(context); });
    usleep(50'000);
    CHECK(Recorder::the().count("destroy") == 0);
    hangs = false;
    retiring.join();
    const std::vector<std::string> calls = Recorder::the().calls();
    REQUIRE(calls.size() >= 2);
    CHECK(calls[calls.size() - 2] == "told");
    CHECK(calls.back() == "destroy");
    collector().collect(RequestKind::figures, 10 * second); // may be the end of the first question
    CHECK(collector().collect(RequestKind::figures, 10 * second).contexts.empty());
}

TEST_CASE("a context whose manager is being reset is not waited for, and not asked") {
    emm_context *const context = told_context();
    Recorder::the().clear();
    {
        const emm::core::OwnerGuard resetting(context->manager_lock);
        const Collected found = collector().collect(RequestKind::figures, 10 * second);
        REQUIRE(found.contexts.size() == 1);
        CHECK(found.contexts[0].problem == "its manager is being created, reset or destroyed");
    }
    CHECK(Recorder::the().count("get_stats") == 0);
    CHECK(collector().collect(RequestKind::figures, 10 * second).contexts[0].stats);
}

TEST_CASE("a plugin that keeps no figures is not taken for one with none") {
    recorded_context();
    const Collected found = collector().collect(RequestKind::figures, 10 * second);
    REQUIRE(found.contexts.size() == 1);
    CHECK_FALSE(found.contexts[0].stats);
    CHECK(found.contexts[0].problem == "the plugin keeps no figures");
}

TEST_CASE("a report is the one of who holds the memory, by device") {
    told_context();
    const Collected found = collector().collect(RequestKind::report, 10 * second);
    CHECK(found.report.rfind("memory of device 0:\n", 0) == 0);
    CHECK(found.report.find("kept by plugin recorder") != std::string::npos);
}

TEST_CASE("without a context a report says so") {
    CHECK(collector().collect(RequestKind::report, 10 * second).report == "no context is served");
}

TEST_CASE("once the process ends no plugin is asked, and one that is asked is waited for") {
    told_context();
    let_plugin_hang();
    const int64_t begin = emm::sockets::now();
    collector().end(second / 10);
    CHECK(emm::sockets::now() - begin >= second / 10);
    hangs = false;
    collector().end(10 * second);
    CHECK(Recorder::the().count("told") == 1);
    const Collected found = collector().collect(RequestKind::figures, 10 * second);
    REQUIRE(found.contexts.size() == 1);
    CHECK(found.contexts[0].problem == "the process ends");
    CHECK(Recorder::the().count("get_stats") == 1);
}
