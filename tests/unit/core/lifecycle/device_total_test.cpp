// Behaviour: the total of a device, as the plugin in force tells it.
#include "../driver_calls.h"
#include "../recorder.h"
#include "catch.h"

#include <stdexcept>

namespace {

// The plugin's answer for a device of so many bytes.
using Answer = emm_status (*)(size_t device_bytes, size_t *ret_total);
Answer answer = nullptr;

size_t of_driver() {
    size_t bytes = 0;
    REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
    REQUIRE(CU(cuDeviceTotalMem)(&bytes, 0) == CUDA_SUCCESS);
    return bytes;
}

bool has_context() {
    unsigned flags = 0;
    int active = 0;
    REQUIRE(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active) == CUDA_SUCCESS);
    return active != 0;
}

void choose_recorder(bool tells) {
    if (tells) {
        Recorder::the().table.get_device_total =
            [](const emm_host *host, int32_t device, size_t device_bytes,
               const char *const *option_texts, size_t *ret_total) {
                CHECK(host == Recorder::the().host);
                CHECK(device == 0);
                CHECK(option_texts);
                return answer(device_bytes, ret_total);
            };
    }
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
}

emm_status ask(Answer told, size_t &ret_total) {
    answer = told;
    return emm_get_device_total(0, &ret_total);
}

} // namespace

TEST_CASE("a plugin tells of a device before there is a context, and none is made") {
    choose_recorder(true);
    const size_t whole = of_driver();
    size_t total = 0;
    const auto half = [](size_t device_bytes, size_t *ret_total) -> emm_status {
        *ret_total = device_bytes / 2;
        return EMM_OK;
    };
    CHECK(ask(half, total) == EMM_OK);
    CHECK(total == whole / 2);
    CHECK_FALSE(has_context());
    CHECK(Recorder::the().calls().empty());
}

TEST_CASE("a plugin that does not tell of a device leaves it as it is") {
    choose_recorder(false);
    size_t total = 0;
    CHECK(emm_get_device_total(0, &total) == EMM_OK);
    CHECK(total == of_driver());
}

TEST_CASE("a total that no device has is the plugin's failure") {
    choose_recorder(true);
    size_t total = 7;
    const Answer answers[] = {[](size_t, size_t *) -> emm_status { return EMM_OK; },
                              [](size_t device_bytes, size_t *ret_total) -> emm_status {
                                  *ret_total = device_bytes + 1;
                                  return EMM_OK;
                              }};
    for (const Answer told : answers) {
        CHECK(ask(told, total) == EMM_E_PLUGIN_FAILED);
        CHECK_THAT(emm_last_error()->text,
                   ContainsSubstring("plugin recorder, get_device_total: expected 1 to"));
    }
    CHECK(total == 7);
}

TEST_CASE("a plugin that cannot tell of a device says why, or its exception is caught") {
    choose_recorder(true);
    size_t total = 7;
    const auto fails = [](size_t, size_t *) {
        return Recorder::the().host->fail(EMM_E_PLUGIN_SPEC, 0, "max is too small");
    };
    CHECK(ask(fails, total) == EMM_E_PLUGIN_SPEC);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("max is too small"));
    const auto throws = [](size_t, size_t *) -> emm_status {
        throw std::runtime_error("lost count");
    };
    CHECK(ask(throws, total) == EMM_E_PLUGIN_EXCEPTION);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("lost count"));
    CHECK(total == 7);
}

TEST_CASE("a device that is not there has no total") {
    size_t total = 7;
    for (const int32_t device : {-1, 1000}) {
        CHECK(emm_get_device_total(device, &total) == EMM_E_INVALID_VALUE);
        CHECK_THAT(emm_last_error()->text, ContainsSubstring("device: expected 0 to"));
    }
    CHECK(emm_get_device_total(0, nullptr) == EMM_E_INVALID_VALUE);
    CHECK(total == 7);
}

TEST_CASE("after shutdown no device has a total") {
    size_t total = 7;
    recorded_context();
    REQUIRE(emm_shutdown() == EMM_OK);
    CHECK(emm_get_device_total(0, &total) == EMM_E_SHUT_DOWN);
    CHECK(total == 7);
}
