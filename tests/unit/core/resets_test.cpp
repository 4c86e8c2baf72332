// Behaviour: state that outlives a reset: sections, streams, captures and peers' access.
#include "catch.h"
#include "driver_calls.h"
#include "recorder.h"

#include <cstdlib>
#include <utility>

namespace {

emm_stream first_stream = nullptr, second_stream = nullptr;

// Two streams of the context's own, in the order of their addresses, in which they are told.
void make_streams(emm_context *context) {
    REQUIRE(CU(cuCtxSetCurrent)(info_of(context).cuda_context) == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamCreate)(&first_stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamCreate)(&second_stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    if (second_stream < first_stream) {
        std::swap(first_stream, second_stream);
    }
}

// Makes the plugin record its calls.
void listen() {
    emm_plugin &table = Recorder::the().table;
    table.defer_cleanup = [](emm_manager *, uint32_t enter) -> emm_status {
        Recorder::the().note(enter ? "enter" : "leave");
        return EMM_OK;
    };
    table.stream_notice = [](emm_manager *, emm_stream stream, uint32_t notice) -> emm_status {
        static const char *const names[] = {"", "registered", "retiring", "begins", "ends"};
        Recorder::the().note(std::string(names[notice]) +
                             (stream == first_stream ? " first" : " second"));
        return EMM_OK;
    };
    table.set_access = [](emm_manager *, int32_t device, uint32_t flags) -> emm_status {
        Recorder::the().note("access " + std::to_string(device) + " " + std::to_string(flags));
        return EMM_OK;
    };
}

using Calls = std::vector<std::string>;

} // namespace

TEST_CASE("a new manager is told what its plugin's former one was, and leaves what it entered") {
    setenv("EMM_SIM", "devices=2", 1);
    listen();
    emm_context *context = recorded_context();
    make_streams(context);
    const bool two = driver_info().device_count >= 2;
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    REQUIRE(emm_stream_register(context, first_stream) == EMM_OK);
    REQUIRE(emm_stream_register(context, second_stream) == EMM_OK);
    REQUIRE(emm_capture_begin(context, second_stream) == EMM_OK);
    if (two) {
        REQUIRE(emm_set_peer_access(context, 1, EMM_ACCESS_READ_WRITE) == EMM_OK);
    }
    for (int i = 0; i < 2; i++) {
        Recorder::the().clear();
        REQUIRE(emm_context_reset(context) == EMM_OK);
        Calls expected = {"destroy", "create", "initialize", "enter", "enter"};
        if (two) {
            expected.push_back("access 1 3");
        }
        expected.insert(expected.end(), {"registered first", "registered second", "begins second"});
        CHECK(Recorder::the().calls() == expected);
    }
    Recorder::the().clear();
    CHECK(emm_capture_end(context, second_stream) == EMM_OK);
    CHECK(emm_stream_retire(context, first_stream) == EMM_OK);
    if (two) {
        CHECK(emm_set_peer_access(context, 1, EMM_ACCESS_NONE) == EMM_OK);
    }
    CHECK(emm_defer_cleanup_end(context) == EMM_OK);
    Recorder::the().clear();
    REQUIRE(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().calls() ==
          Calls{"destroy", "create", "initialize", "enter", "registered second"});
    CHECK(emm_defer_cleanup_end(context) == EMM_OK);
    CHECK(emm_defer_cleanup_end(context) == EMM_E_INVALID_VALUE);
}

TEST_CASE("what a plugin has refused is not told to its next manager") {
    listen();
    Recorder::the().table.stream_notice = [](emm_manager *, emm_stream, uint32_t) -> emm_status {
        return EMM_E_DRIVER;
    };
    emm_context *context = recorded_context();
    make_streams(context);
    CHECK(emm_stream_register(context, first_stream) == EMM_E_DRIVER);
    CHECK(emm_capture_begin(context, first_stream) == EMM_E_DRIVER);
    Recorder::the().clear();
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"destroy", "create", "initialize"});
}

TEST_CASE("a new manager that refuses what holds does not serve, and the next one is asked again") {
    static emm_status answer = EMM_OK;
    listen();
    Recorder::the().table.stream_notice = [](emm_manager *, emm_stream, uint32_t) -> emm_status {
        Recorder::the().note("notice");
        return answer;
    };
    emm_context *context = recorded_context();
    make_streams(context);
    emm_deviceptr ptr = 0;
    REQUIRE(emm_stream_register(context, first_stream) == EMM_OK);
    answer = EMM_E_DRIVER;
    Recorder::the().clear();
    CHECK(emm_context_reset(context) == EMM_E_DRIVER);
    CHECK(Recorder::the().calls() == Calls{"destroy", "create", "initialize", "notice", "destroy"});
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_BUSY);
    answer = EMM_OK;
    Recorder::the().clear();
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"create", "initialize", "notice"});
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
}

TEST_CASE("a plugin with a reset slot is told nothing anew") {
    listen();
    Recorder::the().table.reset = [](emm_manager *) -> emm_status {
        Recorder::the().note("reset");
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    make_streams(context);
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    REQUIRE(emm_stream_register(context, first_stream) == EMM_OK);
    Recorder::the().clear();
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"reset"});
}
