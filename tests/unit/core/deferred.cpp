#include "core/deferred.h"
#include "catch.h"
#include "recorder.h"

#include <atomic>
#include <cstdlib>
#include <thread>

using emm::core::DeferredLimits;
using emm::core::PendingDeallocations;

namespace {

const PendingDeallocations::Entry of_bytes(uint64_t bytes) {
    return {nullptr, nullptr, bytes};
}

emm_status note_run(void *, uint32_t what) {
    Recorder::the().note(what == EMM_DEFERRED_RUN ? "run" : "drop");
    return EMM_OK;
}

void defer(emm_context *context, size_t bytes, emm_deferred function = &note_run) {
    REQUIRE(Recorder::the().host->defer(context, function, nullptr, bytes) == EMM_OK);
}

emm_counters counters() {
    emm_counters counted = {};
    counted.struct_size = sizeof counted;
    emm_get_counters(&counted);
    return counted;
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

TEST_CASE("both limits can be set by variable") {
    setenv("EMM_MAX_PENDING_DEALLOCS_COUNT", "2", 1);
    setenv("EMM_MAX_PENDING_DEALLOCS_RATIO", "nonsense", 1);
    const DeferredLimits limits = emm::core::read_deferred_limits();
    CHECK(limits.count == 2);
    CHECK(limits.ratio == 0.2);
}

TEST_CASE("frees that race from 16 threads all run, each once") {
    emm_context *context = recorded_context();
    static std::atomic<int> ran{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; ++i) {
        threads.emplace_back([context] {
            for (int k = 0; k < 500; ++k) {
                Recorder::the().host->defer(
                    context,
                    [](void *, uint32_t) -> emm_status {
                        ++ran;
                        return EMM_OK;
                    },
                    nullptr, 1);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    REQUIRE(emm_context_retire(context) == EMM_OK);
    CHECK(ran == 16 * 500);
}
