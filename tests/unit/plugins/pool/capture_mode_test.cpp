// Behaviour: how often the pool exchanges its caller's capture mode, and that the mode comes back.
#include "simulation.h"

using namespace pool_test;

namespace {

const char *const exchange_entry = "cuThreadExchangeStreamCaptureMode";

uint64_t exchanges() {
    return cuda().call_count(exchange_entry);
}

CUstreamCaptureMode exchange(CUstreamCaptureMode mode) {
    static const auto entry = reinterpret_cast<decltype(&::cuThreadExchangeStreamCaptureMode)>(
        host().driver(exchange_entry, 12000));
    REQUIRE(entry(&mode) == CUDA_SUCCESS);
    return mode;
}

CUstreamCaptureMode mode_of_this_thread() {
    const CUstreamCaptureMode mode = exchange(CU_STREAM_CAPTURE_MODE_RELAXED);
    exchange(mode);
    return mode;
}

// While this object lives, the thread's mode is one that no new thread has.
class UnusualMode {
public:
    UnusualMode() : before_(exchange(unusual)) {}
    ~UnusualMode() { exchange(before_); }
    UnusualMode(const UnusualMode &) = delete;
    static bool is_still_there() { return mode_of_this_thread() == unusual; }

private:
    static constexpr CUstreamCaptureMode unusual = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    CUstreamCaptureMode before_;
};

// Blocks of both streams, every other one free: a large request has to query them, and to move them
// or to grow.
void leave_gaps(Simulation &sim, CUstream a, CUstream b) {
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 32; i++) {
        blocks.push_back(sim.alloc(4 * MiB, i % 4 < 2 ? a : b));
    }
    for (size_t i = 0; i < blocks.size(); i += 2) {
        sim.free(blocks[i], i % 4 < 2 ? a : b);
    }
}

} // namespace

TEST_CASE("a request that asks much of the driver exchanges the capture mode once in, once out") {
    for (const char *options : {"growth=vmm", "growth=segment", "growth=vmm,slack=0"}) {
        INFO(options);
        Simulation sim(options);
        const CUstream a = sim.stream(), b = sim.stream(), c = sim.stream();
        leave_gaps(sim, a, b);
        const uint64_t queries = cuda().call_count("cuEventQuery"), before = exchanges();
        sim.alloc(48 * MiB, c);
        CHECK(cuda().call_count("cuEventQuery") >= queries + 2);
        CHECK(exchanges() == before + 2);
    }
}

TEST_CASE("a trim and a reset exchange the capture mode once in, once out") {
    for (const char *options : {"growth=vmm", "growth=segment"}) {
        INFO(options);
        Simulation sim(options);
        const CUstream a = sim.stream(), b = sim.stream();
        leave_gaps(sim, a, b);
        uint64_t before = exchanges();
        sim.trim();
        CHECK(exchanges() == before + 2);
        before = exchanges();
        pool().reset(sim.manager);
        CHECK(exchanges() == before + 2);
    }
}

TEST_CASE("a request that free memory serves does not exchange the capture mode") {
    Simulation sim;
    const CUstream stream = sim.stream();
    sim.free(sim.alloc(48 * MiB, stream), stream);
    const uint64_t before = exchanges();
    sim.free(sim.alloc(40 * MiB, stream), stream);
    CHECK(exchanges() == before);
}

TEST_CASE("the caller's capture mode is its own again after every call, failed ones too") {
    for (const char *options : {"growth=vmm,max=256MiB", "growth=segment,max=256MiB"}) {
        INFO(options);
        Simulation sim(options);
        const UnusualMode mode;
        const CUstream a = sim.stream(), b = sim.stream(), c = sim.stream(false);
        leave_gaps(sim, a, b);
        CHECK(mode.is_still_there());
        sim.free(sim.alloc(48 * MiB, c), unordered);
        CHECK(mode.is_still_there());
        CUdeviceptr none = 0;
        CHECK(sim.try_alloc(250 * MiB, a, none) == EMM_E_OUT_OF_MEMORY);
        CHECK(mode.is_still_there());
        sim.notice(b, EMM_STREAM_CAPTURE_BEGINS);
        CHECK(mode.is_still_there());
        sim.notice(b, EMM_STREAM_CAPTURE_ENDS);
        sim.trim();
        CHECK(mode.is_still_there());
        pool().reset(sim.manager);
        CHECK(mode.is_still_there());
    }
}

TEST_CASE("an exchange of the capture mode that fails leaves no mode behind") {
    for (const char *options : {"growth=vmm", "growth=segment"}) {
        INFO(options);
        Simulation sim(options);
        const UnusualMode mode;
        cuda().fail((std::string(exchange_entry) + "@1").c_str());
        CUdeviceptr any = 0;
        sim.try_alloc(48 * MiB, sim.stream(), any);
        cuda().fail(nullptr);
        CHECK(mode.is_still_there());
    }
}

// A query, or an allocation, would invalidate the capture of another thread.
TEST_CASE("a request while no exchange of the capture mode succeeds leaves captures valid") {
    for (const char *options : {"growth=vmm", "growth=segment"}) {
        INFO(options);
        Simulation sim(options);
        const CUstream a = sim.stream(), b = sim.stream(), c = sim.stream();
        leave_gaps(sim, a, b);
        const CUstream captures = sim.stream(false);
        REQUIRE(cuda().cuStreamBeginCapture(captures, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
                CUDA_SUCCESS);
        cuda().fail((std::string(exchange_entry) + "@1+").c_str());
        CUdeviceptr none = 0;
        sim.try_alloc(48 * MiB, c, none);
        cuda().fail(nullptr);
        CUgraph graph = nullptr;
        CHECK(cuda().cuStreamEndCapture(captures, &graph) == CUDA_SUCCESS);
        cuda().cuGraphDestroy(graph);
    }
}
