// First steps of the tests of captures and graphs.
#pragma once

#include "cuda_driver.h"

#include <atomic>
#include <chrono>
#include <thread>

inline CUstreamCaptureStatus status_of(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    REQUIRE(cu().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
    return status;
}

inline void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    REQUIRE(cu().cuStreamBeginCapture(stream, mode) == CUDA_SUCCESS);
}

inline CUgraph end(CUstream stream) {
    CUgraph graph = nullptr;
    CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    REQUIRE(cu().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    REQUIRE(graph != nullptr);
    return graph;
}

inline CUgraphExec instantiate(CUgraph graph, unsigned flags = 0) {
    CUgraphExec executable = nullptr;
    REQUIRE(cu().cuGraphInstantiate(&executable, graph, flags) == CUDA_SUCCESS);
    return executable;
}

// Gives the graph an object that calls `destroy` at its end.
inline void retain(CUgraph graph, CUhostFn destroy) {
    CUuserObject object = nullptr;
    REQUIRE(cu().cuUserObjectCreate(&object, nullptr, destroy, 1,
                                    CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) ==
            CUDA_SUCCESS);
}

inline void await_at_least(int count, const std::atomic<int> &counted) {
    for (int i = 0; i < 1000 && counted < count; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}
