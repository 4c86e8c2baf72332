// Streams of a thread in contexts of its own, captured one after the other and together; and host
// functions that wait for another thread's call. The legacy stream waits for the thread's own
// stream, so that stream captures only where no other thread uses the legacy stream.
#include "worker.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace {

const CUstream own = CU_STREAM_PER_THREAD;

constexpr unsigned parts = 128; // of the device's memory
constexpr auto long_enough = std::chrono::seconds(20);

// A host function waits until the other thread's call is over.
struct Meeting {
    std::atomic<bool> begun{false}, called{false}, in_vain{false};
    std::atomic<std::thread::id> caller; // of the call

    static void wait_until(const std::atomic<bool> &what) {
        const auto end = std::chrono::steady_clock::now() + long_enough;
        while (!what && std::chrono::steady_clock::now() < end) {
            std::this_thread::yield();
        }
    }
    static void CUDA_CB host_function(void *argument) {
        Meeting &meeting = *static_cast<Meeting *>(argument);
        meeting.begun = true;
        if (std::this_thread::get_id() != meeting.caller) { // as in the simulated driver
            wait_until(meeting.called);
            meeting.in_vain = !meeting.called;
        }
    }
};

void end_and_drop(CUstream origin) {
    CUgraph graph = nullptr;
    check(cu.cuStreamEndCapture(origin, &graph), "cuStreamEndCapture");
    check(cu.cuGraphDestroy(graph), "cuGraphDestroy");
}

CUresult capture_nothing(CUstream stream) {
    CUgraph graph = nullptr;
    const CUresult begun = cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    const CUresult ended = cu.cuStreamEndCapture(stream, &graph);
    return begun != CUDA_SUCCESS ? begun : ended != CUDA_SUCCESS ? ended : cu.cuGraphDestroy(graph);
}

CUresult retain_and_release(CUdevice device) {
    CUcontext context = nullptr;
    const CUresult retained = cu.cuDevicePrimaryCtxRetain(&context, device);
    return retained != CUDA_SUCCESS ? retained : cu.cuDevicePrimaryCtxRelease(device);
}

} // namespace

// --- own streams in two contexts -----------------------------------------------------------------

void Worker::live_in_two_contexts() {
    if (world_.settings.captures == 0) {
        return;
    }
    CUcontext contexts[2] = {};
    for (CUcontext &context : contexts) {
        const auto device = CUdevice(below(size_t(std::min(world_.machine.devices, 2))));
        check(cu.cuCtxCreate_v2(&context, 0, device), "cuCtxCreate");
    }
    capture_own(contexts[0], chance_.one_in(2) ? contexts[1] : nullptr);
    capture_own(contexts[1], nullptr);
    end_origin();
    if (world_.settings.returned && chance_.one_in(4)) {
        expect_memory_back();
    }
    for (const CUcontext context : contexts) {
        check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
        check(cu.cuCtxDestroy(context), "cuCtxDestroy");
    }
    enter(place_);
}

void Worker::use_once(CUstream stream, Kind kind) {
    Block block;
    block.kind = kind;
    block.size = chance_.size();
    block.stream = stream;
    if (!has_got(allocate_as(block), "an allocation in a context of the thread's own")) {
        return;
    }
    if (kind == Kind::ordered) {
        use(block, stream);
    }
    check(kind == Kind::ordered ? cu.cuMemFreeAsync(block.ptr, stream) : cu.cuMemFree(block.ptr),
          "a free in a context of the thread's own");
}

// `joins`: the context whose own stream takes part, or NULL.
void Worker::capture_own(CUcontext context, CUcontext joins) {
    check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cu.cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
    use_once(own, Kind::ordered);
    use_once(own, Kind::plain);
    if (joins) {
        const CUevent before = record(own);
        check(cu.cuCtxSetCurrent(joins), "cuCtxSetCurrent");
        check(cu.cuStreamWaitEvent(own, before, 0), "cuStreamWaitEvent");
        use_once(own, Kind::plain);
        use_once(own, Kind::ordered);
        const CUevent after = record(own);
        check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
        check(cu.cuStreamWaitEvent(own, after, 0), "cuStreamWaitEvent");
        check(cu.cuEventDestroy(before), "cuEventDestroy");
        check(cu.cuEventDestroy(after), "cuEventDestroy");
    }
    end_and_drop(own);
}

// A capture ends with its origin, and the joined streams are as before.
void Worker::end_origin() {
    Stream origin;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    make_stream(origin);
    check(cu.cuStreamBeginCapture(origin.handle, CU_STREAM_CAPTURE_MODE_RELAXED),
          "cuStreamBeginCapture");
    order(origin.handle, own);
    use_once(own, Kind::ordered);
    check(cu.cuStreamDestroy(origin.handle), "cuStreamDestroy");
    check(cu.cuStreamIsCapturing(own, &status), "cuStreamIsCapturing");
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) {
        throw std::runtime_error("a stream captures after its capture's origin was destroyed");
    }
    use_once(own, Kind::ordered);
}

// Takes more memory than there is, piece after piece.
void Worker::expect_memory_back() {
    size_t free = 0, total = 0;
    check(cu.cuMemGetInfo(&free, &total), "cuMemGetInfo");
    for (unsigned i = 0; i < parts + parts / 8; i++) {
        CUdeviceptr address = 0;
        if (has_got(cu.cuMemAlloc(&address, total / parts), "memory that was freed")) {
            check(cu.cuMemFree(address), "cuMemFree");
        }
    }
}

// --- host functions ------------------------------------------------------------------------------

// On a GPU the driver's own cuMemFree, of any thread, holds up the call that the function waits
// for. So there is one meeting at a time: the simulated driver may run one function within the call
// that another function waits for.
bool Worker::may_meet() {
    return world_.machine.is_simulated && world_.settings.meetings && chance_.one_in(2) &&
           !world_.is_meeting.exchange(true);
}

// Puts a function on the stream that waits for a call of another thread. `wait` may wait for the
// function, and after `finish` it is over.
template <class Wait, class Finish> void Worker::meet(CUstream stream, Wait wait, Finish finish) {
    Meeting meeting;
    CUresult answer = CUDA_ERROR_UNKNOWN;
    CUcontext context = nullptr;
    Stream other;
    const bool captures = chance_.one_in(2) && world_.settings.captures != 0;
    const auto device = CUdevice(below(size_t(std::min(world_.machine.devices, 2))));
    check(cu.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    enter(place_);
    check(cu.cuStreamCreate(&other.handle, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    std::thread thread([&] {
        meeting.caller = std::this_thread::get_id();
        cu.cuCtxSetCurrent(world_.places[place_].context);
        Meeting::wait_until(meeting.begun);
        answer = captures ? capture_nothing(other.handle) : retain_and_release(device);
        meeting.called = true;
    });
    const CUresult launched = cu.cuLaunchHostFunc(stream, &Meeting::host_function, &meeting);
    const CUresult waited = wait();
    meeting.begun = true;
    thread.join();
    check(finish(), "the end of a host function");
    check(launched, "cuLaunchHostFunc");
    check(waited, "the call that waits for a host function");
    check(answer, "the call that a host function waits for");
    check(cu.cuStreamDestroy(other.handle), "cuStreamDestroy");
    world_.is_meeting = false;
    if (meeting.in_vain) {
        throw std::runtime_error("a host function waited for another thread's call in vain");
    }
}

void Worker::free_beside_host_function() {
    if (!may_meet()) {
        return release();
    }
    const Block block = take_block();
    const CUstream stream = any_own();
    order(block.stream, stream);
    if (!waits_at_free(block.kind)) {
        check(cu.cuStreamSynchronize(block.stream), "cuStreamSynchronize");
    }
    meet(
        stream, [&] { return cu.cuMemFree(block.ptr); },
        [&] { return cu.cuStreamSynchronize(stream); });
}

// The last user of a primary context may be another thread.
void Worker::release_beside_host_function(CUstream stream, CUdevice device) {
    const auto release = [&] { return cu.cuDevicePrimaryCtxRelease(device); };
    meet(stream, release, [&] {
        CUcontext context = nullptr;
        check(cu.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
        check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
        check(cu.cuCtxSynchronize(), "cuCtxSynchronize");
        return release();
    });
}
