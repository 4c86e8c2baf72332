// A thread's own stream, CU_STREAM_PER_THREAD, is another stream for each thread and context: a
// capture on one does not concern the others.
#include "cases.h"
#include "objects.h"

#include <atomic>
#include <thread>

namespace {

constexpr size_t large = 64 * mib;
constexpr int more_than_there_is = 200; // of 8 GiB
constexpr int captures = 50;

const CUstream own = CU_STREAM_PER_THREAD;

struct User {
    explicit User(CUdevice device = 0) { NEED(cu.cuCtxCreate_v2(&context, 0, device)); }
    ~User() { cu.cuCtxDestroy(context); }
    User(const User &) = delete;
    User &operator=(const User &) = delete;
    CUcontext context = nullptr;
};

void enter(CUcontext context) {
    NEED(cu.cuCtxSetCurrent(context));
}

void end_capture() {
    CUgraph graph = nullptr;
    NEED(cu.cuStreamEndCapture(own, &graph));
    NEED(cu.cuGraphDestroy(graph));
}

void capture_in(CUcontext context) {
    enter(context);
    NEED(cu.cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED));
    end_capture();
}

// Freed memory can be allocated again.
void take_and_free(CUcontext context, const char *name) {
    enter(context);
    int taken = 0;
    for (; taken < more_than_there_is; ++taken) {
        CUdeviceptr address = 0;
        if (cu.cuMemAlloc(&address, large) != CUDA_SUCCESS ||
            cu.cuMemFree(address) != CUDA_SUCCESS) {
            break;
        }
    }
    fact(taken == more_than_there_is, "%s: memory that was freed is there again", name);
}

void one_after_the_other(CUcontext first) {
    const User second;
    capture_in(first);
    capture_in(second.context);
    take_and_free(second.context, "captures of a thread in two contexts");
    take_and_free(first, "and in the first");
}

void by_two_threads(CUcontext first) {
    const User second;
    for (const CUcontext context : {first, second.context}) {
        std::thread([context] { capture_in(context); }).join();
    }
    take_and_free(second.context, "captures of two threads in two contexts");
    enter(first);
}

// Joins in the other context, whose own stream waits for an event of this context's.
void join(CUcontext from, CUcontext to) {
    enter(from);
    const Event event;
    NEED(cu.cuEventRecord(event, own));
    enter(to);
    NEED(cu.cuStreamWaitEvent(own, event, 0));
}

void joined_across(CUcontext here, CUcontext there, const char *name) {
    enter(here);
    const CUdeviceptr block = allocate(mib);
    enter(there);
    const CUdeviceptr plain = allocate(mib), other = allocate(mib);
    enter(here);
    NEED(cu.cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED));
    join(here, there);
    fact(status_of(own) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "%s: the other captures too", name);
    const CUdeviceptr inside = allocate_async(mib, own);
    NEED(cu.cuMemFreeAsync(inside, own));
    NEED(cu.cuMemFree(plain));
    NEED(cu.cuMemFree(other));
    NEED(cu.cuMemFree(block));
    fact(status_of(own) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "%s: after frees, too", name);
    join(there, here);
    end_capture();
    enter(there);
    fact(status_of(own) == CU_STREAM_CAPTURE_STATUS_NONE, "%s: and no longer", name);
    enter(here);
}

// The other thread's calls may record an event of the whole context.
void free_and_trim(CUcontext context, const std::atomic<bool> &is_over) {
    CUmemoryPool pool = nullptr;
    enter(context);
    NEED(cu.cuDeviceGetDefaultMemPool(&pool, 0));
    while (!is_over) {
        NEED(cu.cuMemFree(allocate(512)));
        NEED(cu.cuMemPoolTrimTo(pool, 0));
    }
}

void joined_beside_frees(CUcontext here, CUcontext there) {
    std::atomic<bool> is_over{false};
    std::thread other([&] { free_and_trim(there, is_over); });
    int good = 0;
    for (int i = 0; i < captures; ++i) {
        CUgraph graph = nullptr;
        enter(here);
        NEED(cu.cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED));
        join(here, there);
        join(there, here);
        good += cu.cuStreamEndCapture(own, &graph) == CUDA_SUCCESS &&
                cu.cuGraphDestroy(graph) == CUDA_SUCCESS;
    }
    is_over = true;
    other.join();
    fact(good == captures, "own streams join captures beside another thread's frees");
}

// Memory without a stream is available at once.
void allocated_meanwhile() {
    CUdeviceptr address = 0;
    NEED(cu.cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED));
    result(cu.cuMemAlloc(&address, mib), CUDA_SUCCESS, "cuMemAlloc while the own stream captures");
    fact(status_of(own) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "the own stream captures still");
    end_capture();
    NEED(cu.cuMemFree(address));
}

// The capture ends with its origin, also for the streams that have joined.
void origin_destroyed(CUcontext context) {
    const Stream joined;
    CUstream origin = nullptr;
    NEED(cu.cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    NEED(cu.cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
    order(origin, joined);
    NEED(cu.cuMemFreeAsync(allocate_async(mib, joined), joined));
    NEED(cu.cuStreamDestroy(origin));
    fact(status_of(joined) == CU_STREAM_CAPTURE_STATUS_NONE,
         "no stream captures without its origin");
    CUdeviceptr address = 0;
    result(cu.cuMemAllocAsync(&address, mib, joined), CUDA_SUCCESS, "cuMemAllocAsync on one");
    NEED(fill(address, mib, 90, joined));
    fact(holds(address, mib, 90, joined), "its bytes: ok");
    NEED(cu.cuMemFreeAsync(address, joined));
    take_and_free(context, "a capture whose origin was destroyed");
}

} // namespace

void own_streams_case() {
    const Primary primary;
    one_after_the_other(primary.context);
    by_two_threads(primary.context);
    origin_destroyed(primary.context);
    {
        const User user;
        joined_across(primary.context, user.context, "own streams of two contexts");
        joined_beside_frees(primary.context, user.context);
    }
    {
        const User user(1);
        joined_across(primary.context, user.context, "own streams of two devices");
    }
}

void while_capturing_case() {
    const Primary primary;
    allocated_meanwhile();
}
