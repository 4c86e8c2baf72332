#include "../driver_calls.h"
#include "../recorder.h"
#include "catch.h"
#include "core/record/deferred.h"
#include "parts/threads.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

using emm::core::DeferredLimits;
using emm::core::PendingDeallocations;

namespace {

const PendingDeallocations::Entry of_bytes(uint64_t bytes) {
    return {nullptr, nullptr, bytes};
}

emm_status count_run(void *times, uint32_t) {
    ++*static_cast<std::atomic<int> *>(times);
    return EMM_OK;
}

void defer(emm_context *context, size_t bytes, emm_deferred function = &note_run) {
    REQUIRE(Recorder::the().host->defer(context, function, nullptr, bytes) == EMM_OK);
}

} // namespace

TEST_CASE("ten entries stay pending and the eleventh makes a flush due") {
    PendingDeallocations pending{DeferredLimits{}};
    for (int i = 0; i < 10; ++i) {
        CHECK_FALSE(pending.push(of_bytes(1)));
    }
    CHECK(pending.push(of_bytes(1)));
    CHECK(pending.take().size() == 11);
    CHECK(pending.count() == 0);
}

TEST_CASE("exactly the ratio stays pending and one byte more makes a flush due") {
    PendingDeallocations pending{DeferredLimits{10, 0.2}};
    pending.set_total_memory(1000);
    CHECK_FALSE(pending.push(of_bytes(200)));
    CHECK(pending.push(of_bytes(1)));
}

TEST_CASE("sections nest, hold flushes back, and the outermost end makes one due") {
    PendingDeallocations pending{DeferredLimits{0, 0.2}};
    bool due = false;
    pending.enter();
    pending.enter();
    CHECK_FALSE(pending.push(of_bytes(1)));
    CHECK(pending.leave(&due));
    CHECK_FALSE(due);
    CHECK(pending.leave(&due));
    CHECK(due);
    CHECK_FALSE(pending.leave(&due));
}

TEST_CASE("the eleventh pending free runs all eleven in order") {
    emm_context *context = recorded_context();
    Recorder::the().clear();
    for (int i = 0; i < 10; ++i) {
        defer(context, 1);
    }
    CHECK(Recorder::the().count("run") == 0);
    CHECK(counters().pending_count == 10);
    defer(context, 1);
    CHECK(Recorder::the().count("run") == 11);
    CHECK(counters().pending_count == 0);
}

TEST_CASE("a failing or throwing entry neither loses nor blocks the rest") {
    emm_context *context = recorded_context();
    Recorder::the().clear();
    for (int i = 0; i < 9; ++i) {
        defer(context, 1);
    }
    defer(context, 1, [](void *, uint32_t) -> emm_status { throw 1; });
    defer(context, 1, [](void *, uint32_t) -> emm_status { return EMM_E_DRIVER; });
    CHECK(Recorder::the().count("run") == 9);
    CHECK(counters().failed_deferred == 2);
}

TEST_CASE("nothing is flushed inside a section, not even on out of memory") {
    emm_context *context = recorded_context();
    Recorder::the().clear();
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    for (int i = 0; i < 20; ++i) {
        defer(context, 1);
    }
    Recorder::the().on_memalloc = [](size_t) { return EMM_E_OUT_OF_MEMORY; };
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK(Recorder::the().count("run") == 0);
    CHECK(emm_defer_cleanup_end(context) == EMM_OK);
    CHECK(Recorder::the().count("run") == 20);
    CHECK(emm_defer_cleanup_end(context) == EMM_E_INVALID_VALUE);
}

TEST_CASE("frees that a trim puts on the queue run before the trim returns") {
    Recorder::the().table.trim = [](emm_manager *, size_t, size_t *) {
        defer(Recorder::the().context, 1);
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    Recorder::the().clear();
    CHECK(emm_trim(context, 0, nullptr) == EMM_OK);
    CHECK(Recorder::the().calls() == std::vector<std::string>{"run"});
    Recorder::the().on_memalloc = [](size_t) {
        return Recorder::the().count("run") < 2 ? EMM_E_OUT_OF_MEMORY : EMM_OK;
    };
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
}

TEST_CASE("an announced capture holds flushes back") {
    emm_context *context = recorded_context();
    Recorder::the().clear();
    REQUIRE(emm_capture_begin(context, EMM_STREAM_PER_THREAD) == EMM_OK);
    for (int i = 0; i < 20; ++i) {
        defer(context, 1);
    }
    CHECK(Recorder::the().count("run") == 0);
    REQUIRE(emm_capture_end(context, EMM_STREAM_PER_THREAD) == EMM_OK);
    defer(context, 1);
    CHECK(Recorder::the().count("run") == 21);
    CHECK(emm_capture_end(context, EMM_STREAM_PER_THREAD) == EMM_E_INVALID_VALUE);
}

TEST_CASE("an announcement that the plugin refuses has no end, and each other one has") {
    Recorder::the().table.stream_notice = [](emm_manager *, emm_stream, uint32_t notice) {
        const std::string called = "notice " + std::to_string(notice);
        Recorder::the().note(called);
        return Recorder::the().count(called) == 1 ? EMM_E_BUSY : EMM_OK;
    };
    emm_context *context = recorded_context();
    CHECK(emm_capture_begin(context, EMM_STREAM_PER_THREAD) == EMM_E_BUSY);
    CHECK(emm_capture_end(context, EMM_STREAM_PER_THREAD) == EMM_E_INVALID_VALUE);
    CHECK(Recorder::the().count("notice 4") == 0);
    CHECK(emm_capture_begin(context, EMM_STREAM_PER_THREAD) == EMM_OK);
    CHECK(emm_capture_end(context, EMM_STREAM_PER_THREAD) == EMM_E_BUSY); // the plugin's word on it
    CHECK(emm_capture_end(context, EMM_STREAM_PER_THREAD) == EMM_E_INVALID_VALUE);
    CHECK(Recorder::the().count("notice 4") == 1);
}

TEST_CASE("both limits can be set by variable") {
    setenv("EMM_MAX_PENDING_DEALLOCS_COUNT", "2", 1);
    setenv("EMM_MAX_PENDING_DEALLOCS_RATIO", "nonsense", 1);
    const DeferredLimits limits = emm::core::read_deferred_limits();
    CHECK(limits.count == 2);
    CHECK(limits.ratio == 0.2);
}

TEST_CASE("limits that make no sense leave the defaults in force") {
    for (const char *count : {"ten", "-1", "2.5", "3 ", "99999999999999999999"}) {
        setenv("EMM_MAX_PENDING_DEALLOCS_COUNT", count, 1);
        CHECK(emm::core::read_deferred_limits().count == 10);
    }
    for (const char *ratio : {"5", "1.01", "-0.1", "nan", "inf", "0.5x"}) {
        setenv("EMM_MAX_PENDING_DEALLOCS_RATIO", ratio, 1);
        CHECK(emm::core::read_deferred_limits().ratio == 0.2);
    }
    setenv("EMM_MAX_PENDING_DEALLOCS_RATIO", "1", 1);
    CHECK(emm::core::read_deferred_limits().ratio == 1);
}

TEST_CASE("frees that race from 16 threads all run, each once") {
    emm_context *context = recorded_context();
    static std::atomic<int> ran[16 * 500] = {};
    in_threads(16, [&](size_t i) {
        for (size_t k = 0; k < 500; ++k) {
            if (k % 100 == i) {
                emm_defer_cleanup_begin(context);
            }
            Recorder::the().host->defer(context, &count_run, &ran[i * 500 + k], 1);
            if (k % 100 == i + 20) {
                emm_defer_cleanup_end(context);
            }
        }
    });
    REQUIRE(emm_context_retire(context) == EMM_OK);
    CHECK(
        std::all_of(std::begin(ran), std::end(ran), [](const auto &times) { return times == 1; }));
}

TEST_CASE("the limit on entries is what its variable says, strictly more") {
    setenv("EMM_MAX_PENDING_DEALLOCS_COUNT", "2", 1);
    emm_context *context = recorded_context();
    defer(context, 1);
    defer(context, 1);
    CHECK(Recorder::the().count("run") == 0);
    defer(context, 1);
    CHECK(Recorder::the().count("run") == 3);
}

TEST_CASE("with a limit of 0 entries no free is kept") {
    setenv("EMM_MAX_PENDING_DEALLOCS_COUNT", "0", 1);
    emm_context *context = recorded_context();
    defer(context, 1);
    CHECK(Recorder::the().count("run") == 1);
}

TEST_CASE("the limit on bytes is a ratio of the context's memory, strictly more") {
    setenv("EMM_MAX_PENDING_DEALLOCS_RATIO", "0.5", 1);
    emm_context *context = recorded_context();
    size_t free = 0, total = 0;
    REQUIRE(emm_get_memory_info(context, &free, &total) == EMM_OK);
    REQUIRE(total % 2 == 0);
    defer(context, total / 2);
    CHECK(Recorder::the().count("run") == 0);
    CHECK(counters().pending_bytes == total / 2);
    defer(context, 1);
    CHECK(Recorder::the().count("run") == 2);
    CHECK(counters().pending_bytes == 0);
}

TEST_CASE("host memory counts with its real size") {
    setenv("EMM_MAX_PENDING_DEALLOCS_RATIO", "0.0001", 1);
    emm_context *context = recorded_context();
    size_t free = 0, total = 0;
    REQUIRE(emm_get_memory_info(context, &free, &total) == EMM_OK);
    const size_t small = 4096, large = total / 10'000 + 1;
    void *first = nullptr, *second = nullptr;
    REQUIRE(emm_memhostalloc(context, small, 0, &first, nullptr) == EMM_OK);
    REQUIRE(emm_memhostalloc(context, large, 0, &second, nullptr) == EMM_OK);
    CHECK(emm_memhostfree(context, first, 0, 0, EMM_STREAM_UNORDERED) == EMM_OK);
    CHECK(counters().pending_bytes == small);
    CHECK(emm_memhostfree(context, second, 0, 0, EMM_STREAM_UNORDERED) == EMM_OK);
    CHECK(counters().pending_count == 0);
    CHECK(counters().flushes == 1);
}

TEST_CASE("a section belongs to its context") {
    emm_context *inside = recorded_context(), *outside = nullptr;
    REQUIRE(emm_context_from(new_context(), &outside) == EMM_OK);
    REQUIRE(emm_defer_cleanup_begin(inside) == EMM_OK);
    for (int i = 0; i < 11; ++i) {
        defer(inside, 1);
    }
    CHECK(Recorder::the().count("run") == 0);
    for (int i = 0; i < 11; ++i) {
        defer(outside, 1);
    }
    CHECK(Recorder::the().count("run") == 11);
    CHECK(emm_defer_cleanup_end(outside) == EMM_E_INVALID_VALUE);
    CHECK(emm_defer_cleanup_end(inside) == EMM_OK);
    CHECK(Recorder::the().count("run") == 22);
}

TEST_CASE("the outermost end leaves pending what no limit forbids") {
    emm_context *context = recorded_context();
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    for (int i = 0; i < 11; ++i) {
        defer(context, 1);
    }
    CHECK(emm_defer_cleanup_end(context) == EMM_OK);
    CHECK(Recorder::the().count("run") == 0);
    CHECK(emm_defer_cleanup_end(context) == EMM_OK);
    CHECK(Recorder::the().count("run") == 11);
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    defer(context, 1);
    CHECK(emm_defer_cleanup_end(context) == EMM_OK);
    CHECK(counters().pending_count == 1);
}

TEST_CASE("a reset runs what is pending, in a section too") {
    emm_context *context = recorded_context();
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    defer(context, 1);
    REQUIRE(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().count("run") == 1);
    CHECK(emm_defer_cleanup_end(context) == EMM_OK);
}

TEST_CASE("entries run in the order of their frees, and may free themselves") {
    static emm_context *context;
    static std::vector<int> order;
    static int numbers[11];
    context = recorded_context();
    for (int i = 0; i < 11; ++i) {
        numbers[i] = i;
        REQUIRE(Recorder::the().host->defer(
                    context,
                    [](void *number, uint32_t) -> emm_status {
                        order.push_back(*static_cast<int *>(number));
                        return Recorder::the().host->defer(context, &note_run, nullptr, 1);
                    },
                    &numbers[i], 1) == EMM_OK);
    }
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
    CHECK(Recorder::the().count("run") == 11);
}
