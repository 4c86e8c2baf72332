// Behaviour: threads that are cancelled (pthread_cancel) inside of calls.
#include "catch.h"
#include "driver_calls.h"
#include "recorder.h"

#include <atomic>
#include <cstdlib>
#include <pthread.h>
#include <unistd.h>

namespace {

std::atomic<bool> inside{false}, went_on{false}, may_go_on{false};
emm_context *context = nullptr;

// A cancellation that is let in takes effect in here; otherwise the call ends when the test says
// so.
void stay_in_call() {
    inside = true;
    while (!may_go_on) {
        usleep(100); // a cancellation point
    }
    went_on = true;
}

// Cancels a thread inside of `call`. True: the thread was unwound from there.
bool is_unwound(void *(*call)(void *), bool held_back) {
    inside = went_on = may_go_on = false;
    pthread_t thread;
    void *result = nullptr;
    REQUIRE(pthread_create(&thread, nullptr, call, nullptr) == 0);
    while (!inside) {
        usleep(100);
    }
    REQUIRE(pthread_cancel(thread) == 0);
    may_go_on = held_back;
    REQUIRE(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED); // held back or not, the cancellation was not lost
    return !went_on;
}

// In any case the context still serves, and a reset does not wait for threads that have ended.
void check_that_it_serves() {
    Recorder::the().on_memalloc = [](size_t) { return EMM_OK; };
    emm_deviceptr ptr = 0;
    emm_memory *memory = nullptr;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    CHECK(emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &memory) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(emm_context_retire(context) == EMM_OK);
}

void *allocate(void *) {
    emm_deviceptr ptr = 0;
    emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr);
    pthread_testcancel();
    return nullptr;
}

void *allocate_handle(void *) {
    emm_memory *memory = nullptr;
    emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &memory);
    pthread_testcancel();
    return nullptr;
}

void *trim(void *) {
    emm_trim(context, 0, nullptr);
    pthread_testcancel();
    return nullptr;
}

void *reset(void *) {
    emm_context_reset(context);
    pthread_testcancel();
    return nullptr;
}

void *export_memory(void *) {
    emm_ipc_handle handle = {};
    emm_get_ipc_handle(context, 0x1000, 64, &handle);
    pthread_testcancel();
    return nullptr;
}

void *release_wrapped(void *) {
    emm_memory *memory = nullptr;
    emm_memory_wrap(
        context, 0x1000, nullptr, 1, &inside, [](void *) { stay_in_call(); }, &memory);
    emm_memory_release(memory);
    pthread_testcancel();
    return nullptr;
}

void check_allocations() {
    context = recorded_context();
    Recorder::the().on_memalloc = [](size_t) {
        stay_in_call();
        return EMM_OK;
    };
    CHECK(is_unwound(&allocate, false));
    CHECK(is_unwound(&allocate_handle, false));
    check_that_it_serves();
}

void check_frees_and_pinned_memory() {
    emm_plugin &table = Recorder::the().table;
    table.memfree = [](emm_manager *, emm_deviceptr, size_t, emm_stream) -> emm_status {
        stay_in_call();
        return EMM_OK;
    };
    table.memhostalloc = [](emm_manager *, size_t, uint32_t, void **,
                            emm_deviceptr *) -> emm_status {
        stay_in_call();
        return EMM_OK;
    };
    table.memhostfree = [](emm_manager *, void *, size_t, uint32_t, emm_stream) -> emm_status {
        stay_in_call();
        return EMM_OK;
    };
    context = recorded_context();
    CHECK(is_unwound(
        [](void *) -> void * {
            emm_memfree(context, 0x1000, 64, EMM_STREAM_LEGACY);
            return nullptr;
        },
        false));
    CHECK(is_unwound(
        [](void *) -> void * {
            emm_memory *memory = nullptr;
            emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &memory);
            emm_memory_release(memory);
            return nullptr;
        },
        false));
    CHECK(is_unwound(
        [](void *) -> void * {
            void *host = nullptr;
            emm_memhostalloc(context, 64, 0, &host, nullptr);
            return nullptr;
        },
        false));
    CHECK(is_unwound(
        [](void *) -> void * {
            emm_memhostfree(context, &inside, 64, 0, EMM_STREAM_LEGACY);
            return nullptr;
        },
        false));
    CHECK(emm_context_reset(context) == EMM_OK);
}

} // namespace

TEST_CASE("a thread is unwound from an allocation that it is cancelled in") {
    check_allocations();
}

TEST_CASE("a thread is unwound from a tracked allocation that it is cancelled in") {
    setenv("EMM_TRACK", "module", 1);
    check_allocations();
}

TEST_CASE("a thread is unwound from frees and pinned memory that it is cancelled in") {
    check_frees_and_pinned_memory();
}

TEST_CASE("a thread is unwound from tracked frees and pinned memory that it is cancelled in") {
    setenv("EMM_TRACK", "module", 1);
    check_frees_and_pinned_memory();
}

namespace {

struct Lingering {
    Lingering(const emm_host &, const emm_context_info &, const char *const *) {}
    emm_status memalloc(size_t, emm_stream, emm_deviceptr *ret_ptr) {
        stay_in_call();
        *ret_ptr = 0x1000;
        return EMM_OK;
    }
    emm_status memfree(emm_deviceptr, size_t, emm_stream) { return EMM_OK; }
};

} // namespace

TEST_CASE("a thread is unwound through the adaptor for C++") {
    static const emm_plugin table = emm::make_plugin<Lingering>("lingering", "1.0", "waits");
    REQUIRE(emm_set_plugin_entry([](const emm_host *) { return &table; }, nullptr) == EMM_OK);
    REQUIRE(emm_context_for_device(0, &context) == EMM_OK);
    CHECK(is_unwound(&allocate, false));
    CHECK(emm_context_reset(context) == EMM_OK);
}

TEST_CASE("in the plugin's other functions cancellation waits for the end of the call") {
    emm_plugin &table = Recorder::the().table;
    table.trim = [](emm_manager *, size_t, size_t *) -> emm_status {
        stay_in_call();
        return EMM_OK;
    };
    table.reset = [](emm_manager *) -> emm_status {
        if (!may_go_on) {
            stay_in_call();
        }
        return EMM_OK;
    };
    table.get_ipc_handle = [](emm_manager *, emm_deviceptr, size_t, emm_ipc_handle *) {
        stay_in_call();
        return EMM_E_NOT_SUPPORTED;
    };
    table.release_ipc_handle = [](emm_manager *, const emm_ipc_handle *) -> emm_status {
        return EMM_OK;
    };
    context = recorded_context();
    CHECK_FALSE(is_unwound(&trim, true));
    CHECK_FALSE(is_unwound(&reset, true));
    CHECK_FALSE(is_unwound(&export_memory, true));
    check_that_it_serves();
}

TEST_CASE(
    "in hooks, pressure callbacks and finalizers cancellation waits for the end of the call") {
    context = recorded_context();
    CHECK_FALSE(is_unwound(&release_wrapped, true));
    REQUIRE(emm_set_pressure_callback(
                [](emm_context *, size_t, void *) -> size_t {
                    stay_in_call();
                    return 0;
                },
                nullptr) == EMM_OK);
    Recorder::the().on_memalloc = [](size_t) { return EMM_E_OUT_OF_MEMORY; };
    CHECK_FALSE(is_unwound(&allocate, true));
    CHECK_FALSE(is_unwound(&allocate_handle, true));
    REQUIRE(emm_set_pressure_callback(nullptr, nullptr) == EMM_OK);
    REQUIRE(emm_set_event_hook([](const emm_event *, void *) { stay_in_call(); }, nullptr,
                               nullptr) == EMM_OK);
    CHECK_FALSE(is_unwound(&allocate, true));
    CHECK_FALSE(is_unwound(&allocate_handle, true));
    REQUIRE(emm_set_event_hook(nullptr, nullptr, nullptr) == EMM_OK);
    check_that_it_serves();
}

TEST_CASE("in the warning about tags cancellation waits for the end of the call") {
    REQUIRE(emm_set_log_callback(
                EMM_LOG_WARN, [](int32_t, const char *, void *) { stay_in_call(); }, nullptr) ==
            EMM_OK);
    CHECK_FALSE(is_unwound(
        [](void *) -> void * {
            for (int depth = 0; depth <= 16; depth++) {
                emm_tag_begin("deep");
            }
            pthread_testcancel();
            return nullptr;
        },
        true));
    CHECK(emm_set_log_callback(EMM_LOG_OFF, nullptr, nullptr) == EMM_OK);
}
