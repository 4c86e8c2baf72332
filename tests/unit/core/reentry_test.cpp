// Behaviour: plugins that call emm while it makes, resets or gives up their managers, as they must
// not.
#include "catch.h"
#include "driver_calls.h"
#include "recorder.h"

#include <thread>

namespace {

CUcontext cuda_context = nullptr;
emm_context *served = nullptr;
std::vector<emm_status> answers;

// Every way to get the context, and calls that need no manager but are served by one.
void call_emm() {
    emm_context *context = nullptr;
    emm_deviceptr ptr = 0;
    void *host = nullptr;
    emm_memory *memory = nullptr;
    size_t free = 0, total = 0;
    answers = {
        emm_context_for_device(0, &context),
        emm_context_from(cuda_context, &context),
        emm_context_reset(served),
        emm_context_retire(served),
        emm_shutdown(),
    };
    CHECK(context == nullptr);
    answers.push_back(emm_memalloc(served, 64, EMM_STREAM_LEGACY, &ptr));
    answers.push_back(emm_memhostalloc(served, 64, 0, &host, nullptr));
    answers.push_back(emm_memory_wrap(served, 1, nullptr, 1, nullptr, nullptr, &memory));
    answers.push_back(emm_get_memory_info(served, &free, &total));
    answers.push_back(emm_defer_cleanup_begin(served));
    answers.push_back(emm_stream_register(served, nullptr));
    answers.push_back(emm_capture_begin(served, nullptr));
    answers.push_back(emm_trim(served, 0, nullptr));
}

// The primary context is current, so that emm_context_current finds it too.
emm_status call_emm_with_it_current() {
    emm_context *context = nullptr;
    REQUIRE(CU(cuCtxPushCurrent)(cuda_context) == CUDA_SUCCESS);
    call_emm();
    answers.push_back(emm_context_current(&context));
    REQUIRE(CU(cuCtxPopCurrent)(&cuda_context) == CUDA_SUCCESS);
    CHECK(context == nullptr);
    return EMM_OK;
}

void make_served() {
    served = recorded_context();
    cuda_context = info_of(served).cuda_context;
}

// All calls were refused, and none had an effect.
void check_answers() {
    REQUIRE(answers.size() == 14);
    for (size_t i = 0; i < answers.size(); i++) {
        INFO("call " << i);
        CHECK(answers[i] == EMM_E_REENTERED);
    }
    emm_deviceptr ptr = 0;
    emm_context *again = nullptr;
    CHECK(emm_context_from(cuda_context, &again) == EMM_OK);
    CHECK(again == served);
    CHECK(emm_memalloc(served, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    CHECK(emm_defer_cleanup_end(served) == EMM_E_INVALID_VALUE); // none was begun
}

} // namespace

TEST_CASE("from within create, during a reset, no call for the context is served") {
    make_served();
    Recorder::the().on_create = call_emm_with_it_current;
    CHECK(emm_context_reset(served) == EMM_OK);
    check_answers();
}

TEST_CASE("from within initialize, during a reset, no call for the context is served") {
    make_served();
    Recorder::the().on_initialize = call_emm_with_it_current;
    CHECK(emm_context_reset(served) == EMM_OK);
    check_answers();
}

TEST_CASE("from within destroy, during a reset, no call for the context is served") {
    Recorder::the().table.destroy = [](emm_manager *) { return call_emm_with_it_current(); };
    make_served();
    CHECK(emm_context_reset(served) == EMM_OK);
    check_answers();
}

TEST_CASE("from within a reset slot no call for the context is served") {
    Recorder::the().table.reset = [](emm_manager *) { return call_emm_with_it_current(); };
    make_served();
    CHECK(emm_context_reset(served) == EMM_OK);
    check_answers();
}

// A free that is logged during a reset lies between the plugin's calls.
TEST_CASE("from within the log's callback during a reset the context is not reset again") {
    static emm_status inside = EMM_OK;
    make_served();
    REQUIRE(Recorder::the().host->defer(
                served, [](void *, uint32_t) -> emm_status { return EMM_E_DRIVER; }, nullptr, 1) ==
            EMM_OK);
    REQUIRE(emm_set_log_callback(
                EMM_LOG_WARN,
                [](int32_t, const char *, void *) { inside = emm_context_reset(served); },
                nullptr) == EMM_OK);
    CHECK(emm_context_reset(served) == EMM_OK);
    CHECK(inside == EMM_E_REENTERED);
}

TEST_CASE("from within create no other context can be given a manager, and one that has it is") {
    static emm_status others = EMM_OK, known = EMM_E_BUSY;
    static CUcontext new_one = nullptr;
    make_served();
    new_one = new_context();
    emm_context *made = nullptr;
    Recorder::the().on_create = [] {
        emm_context *other = nullptr, *again = nullptr;
        others = emm_context_from(new_context(), &other);
        known = emm_context_from(cuda_context, &again);
        return EMM_OK;
    };
    CHECK(emm_context_from(new_one, &made) == EMM_OK);
    CHECK(others == EMM_E_REENTERED);
    CHECK(known == EMM_OK);
}

TEST_CASE("a thread that asks for a context during its reset waits for it") {
    static emm_context *seen = nullptr;
    static std::thread other;
    make_served();
    Recorder::the().on_create = [] {
        other = std::thread([] {
            emm_context *context = nullptr;
            if (emm_context_from(cuda_context, &context) == EMM_OK) {
                seen = context;
            }
        });
        return EMM_OK;
    };
    CHECK(emm_context_reset(served) == EMM_OK);
    other.join();
    CHECK(seen == served);
}
