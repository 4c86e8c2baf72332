// The answers of emm/cuda.h to the driver's errors.
#include "catch.h"

#include <emm/cuda.h>

#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

using namespace emm::cuda;

namespace {

// The comment before each error in cuda.h, in one line.
std::map<int, std::string> comments_of_errors() {
    std::ifstream file(CUDA_HEADER);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t end = text.find("} CUresult;");
    std::map<int, std::string> comments;
    for (size_t at = text.find("typedef enum cudaError_enum"); at < end;) {
        const size_t comment = text.find("/**", at), close = text.find("*/", comment),
                     number = text.find('=', close);
        at = number;
        if (number < end) {
            std::istringstream words(text.substr(comment + 3, close - comment - 3));
            std::string &line = comments[std::stoi(text.substr(number + 1))];
            for (std::string word; words >> word;) {
                line += word == "*" ? "" : word + " ";
            }
        }
    }
    return comments;
}

} // namespace

TEST_CASE("errors after which the process must be relaunched, as cuda.h says, are sticky") {
    size_t found = 0;
    for (const auto &[code, comment] : comments_of_errors()) {
        const bool ends = comment.find("must be terminated and relaunched") != comment.npos ||
                          comment.find("context cannot be used anymore") != comment.npos;
        // The device is no longer available; cuda.h tells only this of these errors.
        const bool is_lost = code == CUDA_ERROR_DEVICE_UNAVAILABLE ||
                             code == CUDA_ERROR_ECC_UNCORRECTABLE ||
                             code == CUDA_ERROR_NVLINK_UNCORRECTABLE;
        const auto result = static_cast<CUresult>(code);
        INFO("CUDA error " << code << ": " << comment);
        CHECK(is_sticky(result) == (ends || is_lost));
        CHECK((status_of(result) == EMM_E_DEVICE_LOST) == (ends || is_lost));
        found += ends;
    }
    CHECK(found >= 11); // CUDA 12.0
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
