#include "driver/driver.h"

#include "catch.h"
#include "observe/error.h"

TEST_CASE("a result has a sentence even if no driver is loaded to explain it") {
    CHECK(emm::driver::fail(CUDA_ERROR_INVALID_VALUE, "cuMemFree") == EMM_E_DRIVER);
    CHECK(emm::observe::last_error()->driver_result == CUDA_ERROR_INVALID_VALUE);
    CHECK(emm::observe::last_error()->text ==
          std::string("cuMemFree failed: CUDA error (1), no text"));
}
