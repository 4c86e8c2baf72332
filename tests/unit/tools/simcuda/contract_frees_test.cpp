// Behaviour: the work that each kind of free waits for, on real hardware and simulated. An
// allocator that passes frees on to the driver, later and from another thread, relies on each.
#include "cuda_driver.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace {

constexpr size_t mib = size_t(1) << 20;

enum class Kind { device, managed, pinned };

// Allocated in the current context.
struct Memory {
    explicit Memory(Kind its_kind) : kind(its_kind) {
        const CUresult result = kind == Kind::device ? cu().cuMemAlloc(&address, mib)
                                : kind == Kind::managed
                                    ? cu().cuMemAllocManaged(&address, mib, CU_MEM_ATTACH_GLOBAL)
                                    : cu().cuMemHostAlloc(&host, mib, 0);
        REQUIRE(result == CUDA_SUCCESS);
    }
    CUresult free() const {
        return kind == Kind::pinned ? cu().cuMemFreeHost(host) : cu().cuMemFree(address);
    }
    const Kind kind;
    CUdeviceptr address = 0;
    void *host = nullptr;
};

// Work that lasts on hardware, and that the simulated driver runs during a wait for it.
struct Work {
    CUresult begin(CUstream stream) { return cu().cuLaunchHostFunc(stream, run, this); }
    std::atomic<bool> has_ended{false};

private:
    static void run(void *self) {
        if (!cu().simulated()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        static_cast<Work *>(self)->has_ended = true;
    }
};

// A second context of device 0, which is not current.
struct Other {
    Other() {
        CUcontext popped = nullptr;
        REQUIRE(cu().create_context(&context, 0, 0) == CUDA_SUCCESS);
        REQUIRE(cu().cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
    }
    ~Other() { cu().cuCtxDestroy(context); }
    CUcontext context = nullptr;
};

// Makes a context, or none, current for a while.
struct Current {
    explicit Current(CUcontext context) {
        cu().cuCtxGetCurrent(&before_);
        REQUIRE(cu().cuCtxSetCurrent(context) == CUDA_SUCCESS);
    }
    ~Current() { cu().cuCtxSetCurrent(before_); }

private:
    CUcontext before_ = nullptr;
};

// Runs the test for each kind of memory. Before the driver is initialised.
template <class Test> void for_each_kind(Test test) {
    if (cu().simulated()) {
        REQUIRE(cu().configure("progress=lazy") == CUDA_SUCCESS);
    }
    for (const Kind kind : {Kind::device, Kind::managed, Kind::pinned}) {
        INFO("kind " << int(kind));
        test(kind);
    }
}

} // namespace

TEST_CASE("a free waits for work of the memory's context while another one is current") {
    for_each_kind([](Kind kind) {
        Work work;
        const Device device;
        const Other other;
        const Stream stream;
        const Memory memory(kind);
        REQUIRE(work.begin(stream) == CUDA_SUCCESS);
        {
            const Current current(other.context);
            REQUIRE(memory.free() == CUDA_SUCCESS);
        }
        CHECK(work.has_ended);
    });
}

TEST_CASE("a free waits for work of the memory's context while none is current") {
    for_each_kind([](Kind kind) {
        Work work;
        const Device device;
        const Stream stream;
        const Memory memory(kind);
        REQUIRE(work.begin(stream) == CUDA_SUCCESS);
        {
            const Current current(nullptr);
            REQUIRE(memory.free() == CUDA_SUCCESS);
        }
        CHECK(work.has_ended);
    });
}

TEST_CASE("a free waits for work on another thread's own stream") {
    for_each_kind([](Kind kind) {
        Work work;
        const Device device;
        const Memory memory(kind);
        std::mutex mutex;
        std::condition_variable changed;
        bool has_begun = false, may_end = false;
        CUresult launched = CUDA_ERROR_UNKNOWN;
        std::thread thread([&] { // kept: a thread's end may wait for its stream
            cu().cuCtxSetCurrent(device.context);
            launched = work.begin(CU_STREAM_PER_THREAD);
            std::unique_lock lock(mutex);
            has_begun = true;
            changed.notify_all();
            changed.wait(lock, [&] { return may_end; });
        });
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return has_begun; });
        const CUresult result = memory.free();
        const bool has_ended = work.has_ended;
        may_end = true;
        changed.notify_all();
        lock.unlock();
        thread.join();
        REQUIRE(launched == CUDA_SUCCESS);
        CHECK(result == CUDA_SUCCESS);
        CHECK(has_ended);
    });
}

// As where a block is freed on a stream of another context.
TEST_CASE("a free waits for a stream that does nothing but wait for another context's work") {
    for_each_kind([](Kind kind) {
        Work work;
        const Device device;
        const Other other;
        const Stream behind;
        const Memory memory(kind);
        {
            const Current current(other.context);
            const Stream stream;
            REQUIRE(work.begin(stream) == CUDA_SUCCESS);
            const Event event;
            REQUIRE(cu().cuEventRecord(event, stream) == CUDA_SUCCESS);
            REQUIRE(cu().cuStreamWaitEvent(behind, event, 0) == CUDA_SUCCESS);
        }
        REQUIRE(memory.free() == CUDA_SUCCESS);
        CHECK(work.has_ended);
    });
}

TEST_CASE("a free waits for work on a stream that was destroyed") {
    for_each_kind([](Kind kind) {
        Work work;
        const Device device;
        const Memory memory(kind);
        {
            const Stream stream;
            REQUIRE(work.begin(stream) == CUDA_SUCCESS);
        }
        REQUIRE(memory.free() == CUDA_SUCCESS);
        CHECK(work.has_ended);
    });
}

TEST_CASE("a free waits for work in relaxed capture mode while another stream captures") {
    for_each_kind([](Kind kind) {
        const Device device;
        for (const auto capture_mode :
             {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
              CU_STREAM_CAPTURE_MODE_RELAXED}) {
            for (const bool other_thread : {false, true}) {
                INFO("mode " << int(capture_mode) << ", other thread " << other_thread);
                Work work;
                const Stream stream, captured;
                const Memory memory(kind);
                CUgraph graph = nullptr;
                CUresult result = CUDA_ERROR_UNKNOWN;
                const auto free = [&] {
                    cu().cuCtxSetCurrent(device.context);
                    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
                    cu().cuThreadExchangeStreamCaptureMode(&mode);
                    result = memory.free();
                    cu().cuThreadExchangeStreamCaptureMode(&mode);
                };
                REQUIRE(work.begin(stream) == CUDA_SUCCESS);
                REQUIRE(cu().cuStreamBeginCapture(captured, capture_mode) == CUDA_SUCCESS);
                other_thread ? std::thread(free).join() : free();
                CHECK(result == CUDA_SUCCESS);
                CHECK(work.has_ended);
                REQUIRE(cu().cuStreamEndCapture(captured, &graph) == CUDA_SUCCESS);
                REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
            }
        }
    });
}
