// What emm/cuda.h makes of the driver's answers.
#include "catch.h"

#include <emm/cuda.h>

#include <algorithm>
#include <iterator>

using namespace emm::cuda;

// Of these CUDA says that the process has to be ended, or that the device is not to be had any
// more.
constexpr CUresult sticky[] = {CUDA_ERROR_DEVICE_UNAVAILABLE,
                               CUDA_ERROR_ECC_UNCORRECTABLE,
                               CUDA_ERROR_NVLINK_UNCORRECTABLE,
                               CUDA_ERROR_EXTERNAL_DEVICE,
                               CUDA_ERROR_ILLEGAL_ADDRESS,
                               CUDA_ERROR_LAUNCH_TIMEOUT,
                               CUDA_ERROR_ASSERT,
                               CUDA_ERROR_HARDWARE_STACK_ERROR,
                               CUDA_ERROR_ILLEGAL_INSTRUCTION,
                               CUDA_ERROR_MISALIGNED_ADDRESS,
                               CUDA_ERROR_INVALID_ADDRESS_SPACE,
                               CUDA_ERROR_INVALID_PC,
                               CUDA_ERROR_LAUNCH_FAILED};

TEST_CASE("errors that leave the context unusable are sticky, and no others") {
    for (int code = 0; code <= CUDA_ERROR_UNKNOWN; ++code) {
        const auto result = static_cast<CUresult>(code);
        const bool expected =
            std::find(std::begin(sticky), std::end(sticky), result) != std::end(sticky);
        INFO("CUDA error " << code);
        CHECK(is_sticky(result) == expected);
        CHECK((status_of(result) == EMM_E_DEVICE_LOST) == expected);
    }
}

TEST_CASE("an error of the driver becomes the status that says what the caller can do") {
    CHECK(status_of(CUDA_SUCCESS) == EMM_OK);
    CHECK(status_of(CUDA_ERROR_OUT_OF_MEMORY) == EMM_E_OUT_OF_MEMORY);
    CHECK(status_of(CUDA_ERROR_NOT_SUPPORTED) == EMM_E_NOT_SUPPORTED);
    CHECK(status_of(CUDA_ERROR_DEINITIALIZED) == EMM_E_SHUT_DOWN);
    CHECK(status_of(CUDA_ERROR_CONTEXT_IS_DESTROYED) == EMM_E_RETIRED);
    CHECK(status_of(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) == EMM_E_CAPTURING);
    CHECK(status_of(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) == EMM_E_CAPTURING);
    CHECK(status_of(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) == EMM_E_CAPTURING);
    CHECK(status_of(CUDA_ERROR_UNKNOWN) == EMM_E_DRIVER);
    CHECK(status_of(CUDA_ERROR_INVALID_VALUE) == EMM_E_DRIVER);
    CHECK(status_of(CUDA_ERROR_INVALID_VALUE, EMM_E_INVALID_VALUE) == EMM_E_INVALID_VALUE);
}

TEST_CASE("only the end of the driver or of the context makes a free late") {
    for (int code = 0; code <= CUDA_ERROR_UNKNOWN; ++code) {
        CHECK(is_late(static_cast<CUresult>(code)) ==
              (code == CUDA_ERROR_DEINITIALIZED || code == CUDA_ERROR_CONTEXT_IS_DESTROYED));
    }
}
