// The help of other contexts for a request that memory has run out for.
#include "core/memory/recovery.h"

#include "../driver_calls.h"
#include "../recorder.h"
#include "catch.h"
#include "core/record/context.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

namespace {

emm_status trim_noted(emm_manager *, size_t, size_t *ret_released) {
    Recorder::the().note("trim");
    *ret_released = 0;
    return EMM_OK;
}

size_t press_noted(emm_context *, size_t bytes, void *) {
    Recorder::the().note("press");
    return bytes;
}

// Memory is available once so many trims have been recorded.
std::function<emm_status(size_t)> succeed_after(size_t trims) {
    return [trims](size_t) {
        return Recorder::the().count("trim") >= trims ? EMM_OK : EMM_E_OUT_OF_MEMORY;
    };
}

emm_status ask(emm_context *context, size_t size) {
    emm_deviceptr ptr = 0;
    return emm_memalloc(context, size, EMM_STREAM_LEGACY, &ptr);
}

} // namespace

TEST_CASE("the application is asked only if a trim of the device's other contexts is not enough") {
    Recorder::the().table.trim = trim_noted;
    emm_context *const context = recorded_context();
    context_from(new_context());
    emm_set_pressure_callback(
        [](emm_context *, size_t, void *) -> size_t {
            Recorder::the().note("press");
            return 0;
        },
        nullptr);
    std::vector<std::string> expected = {"memalloc", "trim", "memalloc", "trim", "memalloc"};
    Recorder::the().on_memalloc = succeed_after(2);
    Recorder::the().clear();
    CHECK(ask(context, context->total_memory) == EMM_OK);
    CHECK(Recorder::the().calls() == expected);
    Recorder::the().on_memalloc = succeed_after(3);
    Recorder::the().clear();
    CHECK(ask(context, context->total_memory) == EMM_E_OUT_OF_MEMORY);
    expected.push_back("press"); // it gives nothing back
    CHECK(Recorder::the().calls() == expected);
}

TEST_CASE("the other contexts are trimmed again for what the application gave back to them") {
    Recorder::the().table.trim = trim_noted;
    emm_context *const context = recorded_context();
    context_from(new_context());
    emm_set_pressure_callback(press_noted, nullptr);
    Recorder::the().on_memalloc = succeed_after(4);
    Recorder::the().clear();
    CHECK(ask(context, context->total_memory) == EMM_OK);
    CHECK(Recorder::the().calls() == std::vector<std::string>{"memalloc", "trim", "memalloc",
                                                              "trim", "memalloc", "press", "trim",
                                                              "memalloc", "trim", "memalloc"});
}

TEST_CASE("no other context is trimmed where the context's own memory does, or the driver has it") {
    Recorder::the().table.trim = trim_noted;
    emm_context *const context = recorded_context();
    context_from(new_context());
    Recorder::the().on_memalloc = succeed_after(1);
    CHECK(ask(context, context->total_memory) == EMM_OK);
    CHECK(Recorder::the().count("trim") == 1);
    Recorder::the().clear();
    Recorder::the().on_memalloc = succeed_after(2);
    CHECK(ask(context, 64) == EMM_E_OUT_OF_MEMORY);
    CHECK(Recorder::the().count("trim") == 1);
}

TEST_CASE("whether a request can be met at all is asked of the bound that holds now") {
    setenv("EMM_LIMIT", "64MiB", 1);
    Recorder::the().table.trim = trim_noted;
    emm_context *const context = recorded_context();
    Recorder::the().on_memalloc = succeed_after(1);
    CHECK(ask(context, 96 << 20) == EMM_E_OUT_OF_MEMORY);
    CHECK(Recorder::the().count("trim") == 0);
    REQUIRE(emm::driver::change_limits("128MiB") == EMM_OK);
    CHECK(ask(context, 96 << 20) == EMM_OK);
    CHECK(Recorder::the().count("trim") == 1);
}

TEST_CASE("the share of memory that frees may hold is taken of the bound that holds now") {
    setenv("EMM_LIMIT", "64MiB", 1);
    setenv("EMM_MAX_PENDING_DEALLOCS_RATIO", "0.5", 1);
    emm_context *const context = recorded_context();
    const auto defer = [&](size_t bytes) {
        return Recorder::the().host->defer(
            context, [](void *, uint32_t) -> emm_status { return EMM_OK; }, nullptr, bytes);
    };
    REQUIRE(defer(48 << 20) == EMM_OK);
    CHECK(context->pending.count() == 0);
    REQUIRE(emm::driver::change_limits("128MiB") == EMM_OK);
    REQUIRE(defer(48 << 20) == EMM_OK);
    CHECK(context->pending.count() == 1);
}

TEST_CASE("pinned memory of another context makes room for pinned memory") {
    Recorder::the().table.trim = trim_noted;
    Recorder::the().table.memhostalloc = [](emm_manager *, size_t, uint32_t, void **ret_host,
                                            emm_deviceptr *) -> emm_status {
        *ret_host = &Recorder::the();
        return Recorder::the().count("trim") >= 2 ? EMM_OK : EMM_E_OUT_OF_HOST_MEMORY;
    };
    Recorder::the().table.memhostfree = [](emm_manager *, void *, size_t, uint32_t,
                                           emm_stream) -> emm_status { return EMM_OK; };
    emm_context *const context = recorded_context();
    context_from(new_context());
    void *host = nullptr;
    CHECK(emm_memhostalloc(context, 64, 0, &host, nullptr) == EMM_OK);
}

TEST_CASE("a context that another thread resets is left out") {
    static std::atomic<bool> is_resetting{false}, is_answered{false};
    Recorder::the().table.trim = trim_noted;
    Recorder::the().table.reset = [](emm_manager *) -> emm_status {
        is_resetting = true;
        while (!is_answered) {
            std::this_thread::yield();
        }
        return EMM_OK;
    };
    emm_context *const context = recorded_context(), *const other = context_from(new_context());
    Recorder::the().on_memalloc = succeed_after(2);
    std::thread resetting([other] { emm_context_reset(other); });
    while (!is_resetting) {
        std::this_thread::yield();
    }
    CHECK(ask(context, context->total_memory) == EMM_E_OUT_OF_MEMORY);
    is_answered = true;
    resetting.join();
    CHECK(Recorder::the().count("trim") == 1);
}

TEST_CASE("a reset waits until a trim for another context's request has ended") {
    static std::atomic<bool> is_trimming{false}, is_reset{false}, was_reset_within{false};
    static std::atomic<int> trims{0};
    Recorder::the().table.trim = [](emm_manager *, size_t, size_t *ret_released) -> emm_status {
        if (++trims == 2) {
            is_trimming = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            was_reset_within = is_reset.load();
        }
        *ret_released = 0;
        return EMM_OK;
    };
    Recorder::the().table.reset = [](emm_manager *) -> emm_status {
        is_reset = true;
        return EMM_OK;
    };
    emm_context *const context = recorded_context(), *const other = context_from(new_context());
    Recorder::the().on_memalloc = [](size_t) -> emm_status { return EMM_E_OUT_OF_MEMORY; };
    std::thread resetting([other] {
        while (!is_trimming) {
            std::this_thread::yield();
        }
        emm_context_reset(other);
    });
    CHECK(ask(context, context->total_memory) == EMM_E_OUT_OF_MEMORY);
    resetting.join();
    CHECK(is_reset);
    CHECK_FALSE(was_reset_within);
}

TEST_CASE("what the application gave back to its plugin makes room for memory past any plugin") {
    setenv("EMM_LIMIT", "64MiB", 1);
    static uint64_t idle = 0, taken = 0; // idle: counted for what the plugin keeps until a trim
    Recorder::the().table.trim = [](emm_manager *, size_t, size_t *ret_released) -> emm_status {
        if (Recorder::the().count("press") != 0) {
            emm_give_driver_memory(std::exchange(idle, 0));
        }
        *ret_released = 0;
        return EMM_OK;
    };
    recorded_context();
    emm_set_pressure_callback(press_noted, nullptr);
    const emm_driver_memory memory = {sizeof memory, 0, EMM_MEMORY_PHYSICAL, 0, 48 << 20, nullptr};
    REQUIRE(emm_take_driver_memory(&memory, &idle) == EMM_OK);
    CHECK(emm_take_driver_memory(&memory, &taken) == EMM_OK);
    CHECK(Recorder::the().count("press") == 1);
}

TEST_CASE("failures of the pressure callback leave the plugin's words on the failed request") {
    emm_context *context = recorded_context();
    Recorder::the().on_memalloc = [](size_t) {
        return Recorder::the().host->fail(EMM_E_OUT_OF_MEMORY, 2, "the plugin is full");
    };
    emm_set_pressure_callback(
        [](emm_context *, size_t, void *) -> size_t {
            CHECK(emm_memory_free(nullptr) == EMM_E_INVALID_VALUE);
            return 0;
        },
        nullptr);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK(emm_last_error()->driver_result == 2);
    CHECK_THAT(emm_last_error()->text, Catch::Matchers::EndsWith("; the plugin is full"));
}

TEST_CASE("a plugin may describe its failure before it asks the application for memory") {
    emm_context *context = recorded_context();
    Recorder::the().on_memalloc = [](size_t size) {
        const emm_host &host = *Recorder::the().host;
        const emm_status status = host.fail(EMM_E_DRIVER, 999, "the driver is tired");
        host.pressure(Recorder::the().context, size);
        return status;
    };
    emm_set_pressure_callback([](emm_context *, size_t, void *) -> size_t { return 0; }, nullptr);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_DRIVER);
    CHECK(emm_last_error()->text == std::string("the driver is tired"));
}
