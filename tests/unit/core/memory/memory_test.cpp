#include "../driver_calls.h"
#include "../recorder.h"
#include "catch.h"
#include "core/record/context.h"

#include <stdexcept>

TEST_CASE("size 0 gives address 0 and never reaches the plugin") {
    emm_context *context = recorded_context();
    Recorder::the().clear();
    emm_deviceptr ptr = 1, device = 1;
    void *host = &ptr;
    CHECK(emm_memalloc(context, 0, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    CHECK(ptr == 0);
    CHECK(emm_memhostalloc(context, 0, EMM_HOST_MAPPED, &host, &device) == EMM_OK);
    CHECK(host == nullptr);
    CHECK(device == 0);
    CHECK(emm_memallocmanaged(context, 0, EMM_ATTACH_GLOBAL, &ptr) == EMM_OK);
    CHECK(Recorder::the().calls().empty());
}

TEST_CASE("of size 0, only exports and pinning at NULL are refused, and nothing else is touched") {
    emm_context *context = recorded_context();
    char own[8];
    emm_memory *empty = nullptr, *view = nullptr;
    emm_deviceptr device = 1;
    emm_ipc_handle handle = {};
    REQUIRE(emm_memory_alloc(context, 0, EMM_STREAM_LEGACY, &empty) == EMM_OK);
    Recorder::the().clear();
    CHECK(emm_mempin(context, own, 0, 0, &device) == EMM_OK);
    CHECK(device == 0);
    CHECK(emm_memory_view(empty, 0, 0, &view) == EMM_OK);
    CHECK(emm_mempin(context, nullptr, 0, 0, &device) == EMM_E_INVALID_VALUE);
    CHECK(emm_memory_export(empty, &handle) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("the memory has 0 bytes"));
    CHECK(emm_get_ipc_handle(context, 0x1000, 0, &handle) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("size is 0"));
    CHECK(Recorder::the().calls().empty());
    CHECK(emm_memory_release(view) == EMM_OK);
    CHECK(emm_memory_release(empty) == EMM_OK);
}

TEST_CASE("freeing address 0 is a success that never reaches the plugin") {
    emm_context *context = recorded_context();
    Recorder::the().clear();
    CHECK(emm_memfree(context, 0, 0, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(emm_memhostfree(context, nullptr, 0, 0, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(emm_memfreemanaged(context, 0, 0, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(Recorder::the().calls().empty());
}

TEST_CASE("a NULL argument is refused by name") {
    emm_deviceptr ptr = 7;
    CHECK(emm_memalloc(nullptr, 1, EMM_STREAM_LEGACY, &ptr) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("emm_memalloc: context is NULL"));
    CHECK(ptr == 7);
    emm_context *context = recorded_context();
    CHECK(emm_memalloc(context, 1, EMM_STREAM_LEGACY, nullptr) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("ret_ptr is NULL"));
}

TEST_CASE("a failed allocation leaves the output alone, whatever the plugin did to it") {
    emm_context *context = recorded_context();
    Recorder::the().on_memalloc = [](size_t) { return EMM_E_CAPTURING; };
    emm_deviceptr ptr = 7;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_CAPTURING);
    CHECK(ptr == 7);
}

TEST_CASE("an error is described in the plugin's words, else in the host's") {
    emm_context *context = recorded_context();
    emm_deviceptr ptr = 0;
    Recorder::the().on_memalloc = [](size_t) {
        return Recorder::the().host->fail(EMM_E_DRIVER, 700, "the card is on fire");
    };
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_DRIVER);
    CHECK(emm_last_error()->driver_result == 700);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("the card is on fire"));

    Recorder::the().on_memalloc = [](size_t) { return EMM_E_DRIVER; };
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_DRIVER);
    CHECK(emm_last_error()->driver_result == 0);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("plugin recorder, memalloc"));
}

TEST_CASE("a C++ exception out of a slot becomes a status") {
    emm_context *context = recorded_context();
    emm_deviceptr ptr = 7;
    Recorder::the().on_memalloc = [](size_t) -> emm_status { throw std::runtime_error("oops"); };
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_PLUGIN_EXCEPTION);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("memalloc") && ContainsSubstring("oops"));
    CHECK(ptr == 7);
    Recorder::the().on_memfree = []() -> emm_status { throw 3; };
    CHECK(emm_memfree(context, 0x1000, 64, EMM_STREAM_LEGACY) == EMM_E_PLUGIN_EXCEPTION);
}

TEST_CASE("running out drains and trims, then asks the application, and tries again after each") {
    emm_context *context = recorded_context();
    Recorder &recorder = Recorder::the();
    recorder.on_memalloc = [](size_t) {
        return Recorder::the().count("pressure") != 0 ? EMM_OK : EMM_E_OUT_OF_MEMORY;
    };
    static constexpr auto note_run = [](void *, uint32_t what) -> emm_status {
        Recorder::the().note(what == EMM_DEFERRED_RUN ? "run" : "drop");
        return EMM_OK;
    };
    REQUIRE(recorder.host->defer(context, note_run, nullptr, 64) == EMM_OK);
    REQUIRE(emm_set_pressure_callback(
                [](emm_context *pressed, size_t bytes, void *) {
                    Recorder::the().note("pressure");
                    CHECK(Recorder::the().host->defer(pressed, note_run, nullptr, 64) == EMM_OK);
                    return bytes;
                },
                nullptr) == EMM_OK);
    recorder.clear();
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    CHECK(ptr == 0x1000);
    CHECK(recorder.calls() ==
          std::vector<std::string>{"memalloc", "run", "memalloc", "pressure", "run", "memalloc"});
}

TEST_CASE("a pressure callback is told when it is replaced, and can be put back") {
    emm_context *context = recorded_context();
    Recorder &recorder = Recorder::the();
    recorder.on_memalloc = [](size_t) -> emm_status { return EMM_E_OUT_OF_MEMORY; };
    const emm_pressure_callback note = [](emm_context *, size_t, void *name) {
        Recorder::the().note(static_cast<const char *>(name));
        return size_t(0);
    };
    char first[] = "first", second[] = "second";
    emm_pressure_callback_info before = {}, replaced = {};
    REQUIRE(emm_exchange_pressure_callback(note, first, &before) == EMM_OK);
    CHECK((!before.callback && !before.user_data));
    REQUIRE(emm_exchange_pressure_callback(note, second, &replaced) == EMM_OK);
    CHECK((replaced.callback == note && replaced.user_data == first));
    recorder.clear();
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK((recorder.count("first") == 0 && recorder.count("second") == 1));
    REQUIRE(emm_exchange_pressure_callback(replaced.callback, replaced.user_data, nullptr) ==
            EMM_OK);
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK(recorder.count("first") == 1);
}

TEST_CASE("what is larger than the device neither drains nor trims nor asks the application") {
    emm_context *context = recorded_context();
    Recorder &recorder = Recorder::the();
    recorder.on_memalloc = [](size_t) -> emm_status { return EMM_E_OUT_OF_MEMORY; };
    recorder.table.trim = [](emm_manager *, size_t, size_t *ret_released) -> emm_status {
        Recorder::the().note("trim");
        *ret_released = 0;
        return EMM_OK;
    };
    REQUIRE(emm_set_pressure_callback(
                [](emm_context *, size_t bytes, void *) {
                    Recorder::the().note("pressure");
                    return bytes;
                },
                nullptr) == EMM_OK);
    for (const size_t size : {SIZE_MAX, size_t(1) << 50}) {
        recorder.clear();
        emm_deviceptr ptr = 77;
        CHECK(emm_memalloc(context, size, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
        CHECK_THAT(emm_last_error()->text, ContainsSubstring(std::to_string(size)));
        CHECK(ptr == 77);
        emm_memory *memory = nullptr;
        CHECK(emm_memory_alloc(context, size, EMM_STREAM_LEGACY, &memory) == EMM_E_OUT_OF_MEMORY);
        CHECK(recorder.calls() == std::vector<std::string>{"memalloc", "memalloc"});
    }
}

TEST_CASE("out of memory says what was asked for and what the driver has free") {
    Recorder::the().table.get_memory_info = [](emm_manager *, size_t *ret_free,
                                               size_t *ret_total) -> emm_status {
        *ret_free = 33; // with what the plugin has cached, or less than its limit
        *ret_total = 44;
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    size_t free = 0, total = 0;
    REQUIRE(CU(cuCtxSetCurrent)(context->cuda_context) == CUDA_SUCCESS);
    REQUIRE(context->driver.cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
    Recorder::the().on_memalloc = [](size_t) { return EMM_E_OUT_OF_MEMORY; };
    emm_deviceptr ptr = 7;
    CHECK(emm_memalloc(context, 12345, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(emm_last_error()->text,
               ContainsSubstring(fmt::format(
                   "12345 bytes asked for, {} of {} bytes free on the device", free, total)));
    CHECK(Recorder::the().count("memalloc") == 2);
    CHECK(ptr == 7);
}

TEST_CASE("out of host memory says nothing of the device's") {
    Recorder::the().table.memhostalloc = [](emm_manager *, size_t, uint32_t, void **,
                                            emm_deviceptr *) {
        return Recorder::the().host->fail(EMM_E_OUT_OF_HOST_MEMORY, 2, "pinned memory is used up");
    };
    Recorder::the().table.memhostfree = [](emm_manager *, void *, size_t, uint32_t, emm_stream) {
        return emm_status(EMM_OK);
    };
    emm_context *context = recorded_context();
    void *host = nullptr;
    CHECK(emm_memhostalloc(context, 12345, 0, &host, nullptr) == EMM_E_OUT_OF_HOST_MEMORY);
    const std::string text = emm_last_error()->text;
    CHECK_THAT(text, ContainsSubstring("out of host memory: 12345 bytes asked for (") &&
                         ContainsSubstring("pinned memory is used up"));
    CHECK(text.find("bytes free") == std::string::npos);
}

TEST_CASE("a number that is missing is told as 0 and not as NULL") {
    emm_context *context = recorded_context();
    emm_ipc_handle handle = {};
    CHECK(emm_get_ipc_handle(context, 0x1000, 0, &handle) == EMM_E_INVALID_VALUE);
    CHECK(std::string(emm_last_error()->text) == "emm_get_ipc_handle: size is 0");
    CHECK(emm_get_ipc_handle(context, 0x1000, 64, nullptr) == EMM_E_INVALID_VALUE);
    CHECK(std::string(emm_last_error()->text) == "emm_get_ipc_handle: ret_handle is NULL");
}

TEST_CASE("a pressure callback that runs out itself is not asked again") {
    emm_context *context = recorded_context();
    Recorder::the().on_memalloc = [](size_t) { return EMM_E_OUT_OF_MEMORY; };
    static int depth = 0;
    emm_set_pressure_callback(
        [](emm_context *within, size_t, void *) -> size_t {
            ++depth;
            emm_deviceptr ptr = 0;
            CHECK(emm_memalloc(within, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
            return 0;
        },
        nullptr);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK(depth == 1);
}

TEST_CASE("a free that finds the device lost is a success, and the next allocation says so") {
    emm_context *context = recorded_context();
    Recorder::the().on_memfree = [] { return EMM_E_DEVICE_LOST; };
    CHECK(emm_memfree(context, 0x1000, 64, EMM_STREAM_LEGACY) == EMM_OK);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_DEVICE_LOST);
}

TEST_CASE("after a lost device allocations say so and frees succeed") {
    emm_context *context = recorded_context();
    emm_deviceptr ptr = allocate_in(context, 64, EMM_STREAM_LEGACY);
    Recorder::the().on_memalloc = [](size_t) { return EMM_E_DEVICE_LOST; };
    emm_deviceptr other = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &other) == EMM_E_DEVICE_LOST);
    Recorder::the().on_memalloc = [](size_t) { return EMM_OK; };
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &other) == EMM_E_DEVICE_LOST);
    CHECK(emm_memfree(context, ptr, 64, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(counters().late_frees == 1);
}

TEST_CASE("a trim runs the pending frees first, beside a capture too, but in no section") {
    Recorder::the().table.trim = [](emm_manager *, size_t, size_t *ret_released) -> emm_status {
        Recorder::the().note("trim");
        *ret_released = 0;
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    const auto trim_with_one_pending = [&] {
        REQUIRE(Recorder::the().host->defer(
                    context,
                    [](void *, uint32_t) -> emm_status {
                        Recorder::the().note("run");
                        return EMM_OK;
                    },
                    nullptr, 1) == EMM_OK);
        Recorder::the().clear();
        CHECK(emm_trim(context, 0, nullptr) == EMM_OK);
        return Recorder::the().calls();
    };
    CHECK(trim_with_one_pending() == std::vector<std::string>{"run", "trim"});
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    CHECK(trim_with_one_pending() == std::vector<std::string>{"trim"});
    REQUIRE(emm_defer_cleanup_end(context) == EMM_OK);
    CHECK(trim_with_one_pending() == std::vector<std::string>{"run", "run", "trim"});
    REQUIRE(emm_capture_begin(context, nullptr) == EMM_OK);
    CHECK(trim_with_one_pending() == std::vector<std::string>{"run", "trim"});
    REQUIRE(emm_capture_end(context, nullptr) == EMM_OK);
}
