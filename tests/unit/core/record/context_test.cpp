#include "../driver_calls.h"
#include "../recorder.h"
#include "catch.h"
#include "core/record/context.h"
#include "parts/threads.h"

#include <atomic>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

TEST_CASE("a thread without a context is told so") {
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    emm_context *context = nullptr;
    CHECK(emm_context_current(&context) == EMM_E_NO_CONTEXT);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("emm_context_for_device"));
    CHECK(context == nullptr);
}

TEST_CASE("current, handle and device lead to the same record") {
    emm_context *context = recorded_context();
    const emm_context_info info = info_of(context);
    CHECK(info.device == 0);
    CHECK(info.primary == 1);
    CHECK(context_from(info.cuda_context) == context);
    REQUIRE(CU(cuCtxSetCurrent)(info.cuda_context) == CUDA_SUCCESS);
    emm_context *current = nullptr;
    CHECK(emm_context_current(&current) == EMM_OK);
    CHECK(current == context);
    CHECK(Recorder::the().count("create") == 1);
    CHECK(Recorder::the().count("initialize") == 1);
}

TEST_CASE("a device that is not there is refused with the range") {
    recorded_context();
    emm_context *context = nullptr;
    CHECK(emm_context_for_device(99, &context) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("found 99"));
}

TEST_CASE("16 racing threads make one manager") {
    static std::atomic<int> made{0};
    Recorder::the().on_create = [] {
        ++made;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return EMM_OK;
    };
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    std::atomic<emm_context *> seen{nullptr};
    std::atomic<int> same{0};
    in_threads(16, [&](size_t) {
        emm_context *context = nullptr;
        emm_context *none = nullptr;
        if (emm_context_for_device(0, &context) == EMM_OK) {
            seen.compare_exchange_strong(none, context);
            same += seen == context;
        }
    });
    CHECK(made == 1);
    CHECK(same == 16);
}

TEST_CASE("a plugin that asks for the context that it is made for gets an error") {
    static emm_status inside = EMM_OK;
    Recorder::the().on_create = [] {
        emm_context *context = nullptr;
        inside = emm_context_for_device(0, &context);
        return EMM_OK;
    };
    recorded_context();
    CHECK(inside == EMM_E_REENTERED);
}

TEST_CASE("a failed create is told with its stage and tried again next time") {
    Recorder::the().on_create = [] {
        return Recorder::the().host->fail(EMM_E_NOT_SUPPORTED, 0, "not on a Tuesday");
    };
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    emm_context *context = nullptr;
    CHECK(emm_context_for_device(0, &context) == EMM_E_NOT_SUPPORTED);
    CHECK(context == nullptr);
    CHECK(std::string(emm_last_error()->stage) == "create");
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("not on a Tuesday"));
    Recorder::the().on_create = [] { return EMM_OK; };
    CHECK(emm_context_for_device(0, &context) == EMM_OK);
}

TEST_CASE("a failed initialize destroys the manager and is told with its stage") {
    Recorder::the().on_initialize = [] { return EMM_E_DRIVER; };
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    emm_context *context = nullptr;
    CHECK(emm_context_for_device(0, &context) == EMM_E_DRIVER);
    CHECK(std::string(emm_last_error()->stage) == "initialize");
    CHECK(Recorder::the().count("destroy") == 1);
}

TEST_CASE("the plugin cannot be changed once a context is served") {
    recorded_context();
    CHECK(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_E_BUSY);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("recorder"));
}

TEST_CASE("EMM_PLUGIN outranks a choice from code, which says so") {
    setenv("EMM_PLUGIN", "passthrough", 1);
    CHECK(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_S_IGNORED);
    CHECK(emm_set_plugin("pool") == EMM_S_IGNORED);
}

TEST_CASE("a retired context answers so, its frees are late, its pending frees have run") {
    emm_context *context = recorded_context();
    REQUIRE(Recorder::the().host->defer(context, &note_run, nullptr, 1) == EMM_OK);
    CHECK(emm_context_retire(context) == EMM_OK);
    CHECK(emm_context_retire(context) == EMM_OK);
    CHECK(Recorder::the().count("run") == 1);
    CHECK(Recorder::the().count("destroy") == 1);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_RETIRED);
    CHECK(emm_memfree(context, 0x1000, 64, EMM_STREAM_LEGACY) == EMM_OK);
}

TEST_CASE("after shutdown allocations are refused and frees succeed") {
    emm_context *context = recorded_context();
    CHECK(emm_shutdown() == EMM_OK);
    CHECK(emm_shutdown() == EMM_OK);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_SHUT_DOWN);
    CHECK(emm_memfree(context, 0x1000, 64, EMM_STREAM_LEGACY) == EMM_OK);
    emm_context *again = nullptr;
    CHECK(emm_context_for_device(0, &again) == EMM_E_SHUT_DOWN);
}

TEST_CASE("a handle that comes back for a new context gets a new record") {
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    REQUIRE(emm_driver_entry("cuInit", 12000));
    const CUcontext first = new_context();
    emm_context *before = context_from(first);
    REQUIRE(Recorder::the().host->defer(before, &note_run, nullptr, 1) == EMM_OK);
    REQUIRE(CU(cuCtxDestroy)(first) == CUDA_SUCCESS);
    const CUcontext second = new_context();
    emm_context *after = context_from(second);
    CHECK(after != before);
    // emm finds out by the id. Pending frees are dropped, because their addresses may be another
    // context's.
    CHECK(emm_context_retire(before) == EMM_OK);
    CHECK(Recorder::the().count("run") == 0);
    CHECK(Recorder::the().count("drop") == 1);
}

TEST_CASE("the driver is not asked again about a context that it has called destroyed") {
    emm_context *context = recorded_context();
    const CUcontext first = new_context();
    emm_context *const other = context_from(first);
    REQUIRE(CU(cuCtxDestroy)(first) == CUDA_SUCCESS);
    CHECK(!emm::core::is_alive(*other));
    const auto fail =
        reinterpret_cast<CUresult (*)(const char *)>(emm_driver_entry("simcuda_fail", 12000));
    REQUIRE(fail("cuCtxGetId@1:999") ==
            CUDA_SUCCESS); // that failure would say nothing about the context
    CHECK(!emm::core::is_alive(*other));
    REQUIRE(fail("") == CUDA_SUCCESS);
    CHECK(emm::core::is_alive(*context));
}

TEST_CASE("a context is served that is first seen while a blocking stream captures there") {
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    REQUIRE(emm_driver_entry("cuInit", 12000));
    const CUcontext cuda_context = new_context();
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    REQUIRE(CU(cuStreamCreate)(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    using Begin = CUresult (*)(CUstream, CUstreamCaptureMode);
    REQUIRE(driver_entry<Begin>("cuStreamBeginCapture",
                                10010)(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    context_from(cuda_context);
    CHECK(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
    CHECK(CU(cuGraphDestroy)(graph) == CUDA_SUCCESS);
}

TEST_CASE("a destroyed context is refused as retired") {
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    const CUcontext cuda_context = new_context();
    context_from(cuda_context);
    REQUIRE(CU(cuCtxDestroy)(cuda_context) == CUDA_SUCCESS);
    emm_context *context = nullptr;
    CHECK(emm_context_from(cuda_context, &context) == EMM_E_RETIRED);
}

TEST_CASE("reset without a reset slot destroys and creates") {
    emm_context *context = recorded_context();
    Recorder::the().clear();
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().calls() == std::vector<std::string>{"destroy", "create", "initialize"});
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
}

TEST_CASE("a context whose reset could not make a manager serves again when asked for") {
    emm_context *context = recorded_context();
    Recorder::the().on_create = [] { return EMM_E_DRIVER; };
    CHECK(emm_context_reset(context) == EMM_E_DRIVER);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_BUSY);
    Recorder::the().on_create = [] { return EMM_OK; };
    emm_context *again = nullptr;
    CHECK(emm_context_for_device(0, &again) == EMM_OK);
    CHECK(again == context);
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
}

TEST_CASE("a plugin that needs it finds the context current") {
    static CUcontext seen = nullptr;
    Recorder::the().table.capabilities = EMM_PLUGIN_NEEDS_CURRENT;
    Recorder::the().on_memalloc = [](size_t) {
        CU(cuCtxGetCurrent)(&seen);
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    auto info = sized<emm_context_info>();
    emm_context_get_info(context, &info);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    CHECK(seen == info.cuda_context);
    CUcontext left = info.cuda_context;
    CU(cuCtxGetCurrent)(&left);
    CHECK(left == nullptr);
}

TEST_CASE("a forked child is refused before any lock, and the parent goes on") {
    emm_context *context = recorded_context();
    const pid_t child = fork();
    if (child == 0) {
        emm_deviceptr ptr = 0;
        emm_context *other = nullptr;
        void *host = nullptr;
        const bool refused = emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_FORKED &&
                             emm_memalloc(nullptr, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_FORKED &&
                             emm_memfree(nullptr, 0x1000, 64, nullptr) == EMM_E_FORKED &&
                             emm_memhostalloc(context, 64, 15, &host, nullptr) == EMM_E_FORKED &&
                             emm_memhostfree(context, &host, 64, 15, nullptr) == EMM_E_FORKED &&
                             emm_context_current(nullptr) == EMM_E_FORKED &&
                             emm_memfree(context, 0x1000, 64, EMM_STREAM_LEGACY) == EMM_E_FORKED &&
                             emm_context_for_device(0, &other) == EMM_E_FORKED &&
                             emm_set_plugin("pool") == EMM_E_FORKED &&
                             emm_shutdown() == EMM_E_FORKED;
        _exit(refused ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
}

TEST_CASE("a dead context is not made current, its frees are late, and it can be retired") {
    Recorder::the().table.capabilities = EMM_PLUGIN_NEEDS_CURRENT;
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    const CUcontext cuda_context = new_context();
    emm_context *context = context_from(cuda_context);
    REQUIRE(CU(cuCtxDestroy)(cuda_context) == CUDA_SUCCESS);
    emm_deviceptr ptr = 7;
    CHECK(emm_memfree(context, 0x1000, 64, EMM_STREAM_UNORDERED) == EMM_OK);
    CHECK(emm_memalloc(context, 64, EMM_STREAM_UNORDERED, &ptr) == EMM_E_RETIRED);
    CHECK(ptr == 7);
    CHECK(emm_context_retire(context) == EMM_OK);
    CHECK(Recorder::the().count("destroy") == 1);
    CHECK(Recorder::the().count("memfree") == 0);
}
