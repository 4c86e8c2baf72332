#include "serve/result.h"

#include "catch.h"

using namespace emm::run;

TEST_CASE("a success or notice of emm's is a success of CUDA's") {
    CHECK(result_of(EMM_OK, 0) == CUDA_SUCCESS);
    CHECK(result_of(EMM_S_IGNORED, 0) == CUDA_SUCCESS);
}

TEST_CASE("what memory lacks is CUDA's out of memory, whatever the driver said behind it") {
    CHECK(result_of(EMM_E_OUT_OF_MEMORY, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(result_of(EMM_E_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(result_of(EMM_E_OUT_OF_HOST_MEMORY, 0) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("an error of the driver's reaches the program as it is") {
    CHECK(result_of(EMM_E_DRIVER, CUDA_ERROR_ILLEGAL_ADDRESS) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(result_of(EMM_E_DEVICE_LOST, CUDA_ERROR_LAUNCH_FAILED) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK(result_of(EMM_E_INVALID_VALUE, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) ==
          CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK(result_of(EMM_E_PLUGIN_FAILED, 0) == CUDA_ERROR_UNKNOWN);
}

TEST_CASE("a plugin that cannot serve a context is told as one that does not load") {
    for (const emm_status status :
         {EMM_E_PLUGIN_SPEC, EMM_E_PLUGIN_UNLOADABLE, EMM_E_PLUGIN_INVALID}) {
        CHECK(result_of(status, 0) == CUDA_ERROR_SHARED_OBJECT_INIT_FAILED);
    }
}

TEST_CASE("the driver serves where emm does not: after a retirement, a shutdown, a fork") {
    CHECK(leaves_to_driver(EMM_E_RETIRED));
    CHECK(leaves_to_driver(EMM_E_SHUT_DOWN));
    CHECK(leaves_to_driver(EMM_E_FORKED));
    CHECK_FALSE(leaves_to_driver(EMM_E_OUT_OF_MEMORY));
    CHECK_FALSE(leaves_to_driver(EMM_E_PLUGIN_FAILED));
    CHECK_FALSE(leaves_to_driver(EMM_OK));
}
