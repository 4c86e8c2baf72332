// A call that waits for work holds up no other thread: the work may be a host function that waits
// for the other thread's call. The driver's cuMemFree does hold up most calls; emm's does not wait.
#include "cases.h"
#include "objects.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace {

constexpr auto long_enough = std::chrono::seconds(20); // a wait without success is a failure

struct Meeting {
    std::atomic<bool> begun{false}, called{false}, missed{false};
};

void wait_until(const std::atomic<bool> &what) {
    const auto end = std::chrono::steady_clock::now() + long_enough;
    while (!what && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
    }
}

// Runs on a thread that waits for the work, or on a thread of the driver.
void CUDA_CB meet(void *argument) {
    Meeting &meeting = *static_cast<Meeting *>(argument);
    meeting.begun = true;
    wait_until(meeting.called);
    meeting.missed = !meeting.called;
}

// `waiting` is called with that host function outstanding in the current context; meanwhile another
// thread calls `other`. After `waiting` the function is over.
void beside(const char *name, CUstream stream, const std::function<CUresult()> &waiting,
            const std::function<CUresult()> &other) {
    Meeting meeting;
    CUresult answer = CUDA_ERROR_UNKNOWN;
    CUcontext context = nullptr;
    NEED(cu.cuCtxGetCurrent(&context));
    std::thread thread([&] {
        NEED(cu.cuCtxSetCurrent(context));
        wait_until(meeting.begun);
        answer = other();
        meeting.called = true;
    });
    NEED(cu.cuLaunchHostFunc(stream, meet, &meeting));
    const CUresult waited = waiting();
    meeting.begun = true;
    thread.join();
    fact(!meeting.missed, "%s: the other thread is not held up", name);
    result(waited, CUDA_SUCCESS, "%s: the call that waits", name);
    result(answer, CUDA_SUCCESS, "%s: the other call", name);
}

CUresult capture_nothing() {
    const Stream stream;
    CUgraph graph = nullptr;
    const CUresult result = cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    NEED(cu.cuStreamEndCapture(stream, &graph));
    NEED(cu.cuGraphDestroy(graph));
    return result;
}

CUresult use_primary(CUdevice device) {
    const Primary primary(device);
    NEED(cu.cuMemFree(allocate(mib)));
    return CUDA_SUCCESS;
}

void free_beside_a_capture() {
    const Primary primary;
    const Stream stream;
    const CUdeviceptr block = allocate(mib);
    const auto free_and_wait = [&] {
        const CUresult freed = cu.cuMemFree(block);
        NEED(cu.cuStreamSynchronize(stream));
        return freed;
    };
    beside("cuMemFree, and a capture", stream, free_and_wait, capture_nothing);
}

void release_beside_another_device() {
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    NEED(cu.cuDevicePrimaryCtxRetain(&context, 1));
    NEED(cu.cuCtxSetCurrent(context));
    NEED(cu.cuMemFree(allocate(mib)));
    NEED(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    beside(
        "the last release of a primary context, and another device's", stream,
        [] { return cu.cuDevicePrimaryCtxRelease(1); }, [] { return use_primary(0); });
    NEED(cu.cuCtxSetCurrent(nullptr));
}

} // namespace

void host_functions_case() {
    free_beside_a_capture();
    release_beside_another_device();
}
