// Behaviour: streams that are destroyed while they capture: the same on real hardware and
// simulated.
#include "cuda_driver.h"

namespace {

CUstreamCaptureStatus capture_status(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    REQUIRE(cu().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
    return status;
}

void begin_capture(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    REQUIRE(cu().cuStreamBeginCapture(stream, mode) == CUDA_SUCCESS);
}

// Later work on `after` joins the capture of `before`.
void join(CUstream before, CUstream after) {
    CUevent event = nullptr;
    REQUIRE(cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    REQUIRE(cu().cuEventRecord(event, before) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamWaitEvent(after, event, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuEventDestroy(event) == CUDA_SUCCESS);
}

} // namespace

TEST_CASE("a capture ends when its origin is destroyed, and joined streams go on without it") {
    const Device device;
    const Stream joined;
    const Block block(4096);
    for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
        CUstream origin = nullptr;
        CUgraph graph = nullptr;
        CUdeviceptr address = 0;
        REQUIRE(cu().cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        begin_capture(origin, mode);
        REQUIRE(cu().cuMemsetD8Async(block, 2, 4096, origin) == CUDA_SUCCESS);
        join(origin, joined);
        REQUIRE(cu().cuMemsetD8Async(block, 3, 4096, joined) == CUDA_SUCCESS);
        REQUIRE(cu().cuStreamDestroy(origin) == CUDA_SUCCESS);
        CHECK(capture_status(joined) == CU_STREAM_CAPTURE_STATUS_NONE);
        CHECK(cu().cuMemAllocAsync(&address, 4096, joined) == CUDA_SUCCESS);
        CHECK(cu().cuMemFreeAsync(address, joined) == CUDA_SUCCESS);
        CHECK(cu().cuStreamSynchronize(joined) == CUDA_SUCCESS);
        CHECK(cu().cuStreamEndCapture(joined, &graph) == CUDA_ERROR_ILLEGAL_STATE);
    }
}

TEST_CASE("a capture goes on without a joined stream that is destroyed") {
    const Device device;
    const Stream origin;
    const Block block(4096);
    for (const bool has_work : {false, true}) {
        CUstream joined = nullptr;
        CUgraph graph = nullptr;
        REQUIRE(cu().cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        begin_capture(origin);
        join(origin, joined);
        if (has_work) {
            REQUIRE(cu().cuMemsetD8Async(block, 2, 4096, joined) == CUDA_SUCCESS);
        }
        REQUIRE(cu().cuStreamDestroy(joined) == CUDA_SUCCESS);
        CHECK(capture_status(origin) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
        CHECK(cu().cuStreamEndCapture(origin, &graph) ==
              (has_work ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS));
        CHECK(capture_status(origin) == CU_STREAM_CAPTURE_STATUS_NONE);
        CHECK((!graph || cu().cuGraphDestroy(graph) == CUDA_SUCCESS));
    }
}
