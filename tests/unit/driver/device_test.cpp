#include "../core/driver_calls.h"
#include "../core/recorder.h"
#include "core/record/context.h"
#include "driver/driver.h"

#include <cstdlib>

TEST_CASE("a wait for work fails with the driver's answer if the driver has no memory for it") {
    setenv("EMM_SIM", "fail=cuMemHostAlloc@1:2", 1);
    emm_context *const context = recorded_context();
    if (!simulated_call_count()) {
        return;
    }
    new_context();
    CHECK(emm::driver::wait_for_work(context->driver) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(emm::driver::wait_for_work(context->driver) == CUDA_SUCCESS);
}
