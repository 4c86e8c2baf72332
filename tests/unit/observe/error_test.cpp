#include "observe/error.h"

#include "../core/host_memory.h"
#include "catch.h"

#include <string>
#include <utility>

#if EMM_TEST_FAILS_ALLOCATIONS
TEST_CASE("an error whose texts find no memory has its code, and the code's own sentence") {
    emm::observe::fail(EMM_E_INVALID_VALUE, 7, "an earlier one");
    emm::observe::ErrorDetail detail;
    detail.code = EMM_E_PLUGIN_INVALID;
    detail.text = "a sentence";
    detail.stage = "table"; // has a text in JSON made
    has_memory = false;
    const emm_status status = emm::observe::fail(std::move(detail));
    has_memory = true;
    CHECK(status == EMM_E_PLUGIN_INVALID);
    CHECK(emm_last_error()->code == EMM_E_PLUGIN_INVALID);
    CHECK(emm_last_error()->text == std::string(emm_status_text(EMM_E_PLUGIN_INVALID)));
    CHECK(emm_last_error()->driver_result == 0);
}
#endif
