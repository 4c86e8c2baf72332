// Behaviour: stream captures: no call invalidates them, and memory stays as long as the graph needs
// it.
#include "gpu.h"

namespace {

struct Capture {
    CUstream stream;
    explicit Capture(CUstream on) : stream(on) {
        REQUIRE(CU(cuStreamBeginCapture)(on, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    }
    bool valid() const {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        return CU(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS &&
               status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    }
    CUgraph end() const {
        CUgraph graph = nullptr;
        REQUIRE(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
        return graph;
    }
};

CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    REQUIRE(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0) == CUDA_SUCCESS);
    return exec;
}

// Only the graph has the MiB at `scratch`, which it fills with nines.
void expect_kept(const Gpu &gpu, CUgraphExec exec, emm_deviceptr scratch, CUstream stream) {
    for (int i = 0; i < 15; i++) { // a long queue, which would be flushed
        const emm_deviceptr ptr = gpu.allocate(1 << 20, stream);
        CHECK(ptr != scratch);
        CHECK(gpu.free(ptr, 1 << 20, stream) == EMM_OK);
    }
    REQUIRE(CU(cuGraphLaunch)(exec, stream) == CUDA_SUCCESS);
    synchronize(stream);
    CHECK(last_word(scratch, 1 << 20) == 9);
}

} // namespace

TEST_CASE("allocating and freeing on other streams leaves a capture whole") {
    const Gpu gpu;
    const CUstream captured = gpu.make_stream(), other = gpu.make_stream();
    const emm_deviceptr old = gpu.allocate(1 << 20, other);
    const Capture capture(captured);
    for (int i = 0; i < 20; i++) {
        CHECK(gpu.free(gpu.allocate(8 << 20, other), 8 << 20, other) == EMM_OK);
    }
    CHECK(gpu.free(old, 1 << 20, other) == EMM_OK);
    gpu.allocate(4096);
    CHECK(capture.valid());
    CU(cuGraphDestroy)(capture.end());
}

TEST_CASE("a pool that is made while a registered stream captures leaves the capture whole") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    REQUIRE(emm_stream_register(gpu.emm(), stream) == EMM_OK);
    REQUIRE(emm_capture_begin(gpu.emm(), stream) == EMM_OK);
    const Capture capture(stream);
    emm_context *pool = nullptr;
    CHECK(emm_context_named(gpu.emm(), "made-in-a-capture", nullptr, &pool) == EMM_OK);
    CHECK(capture.valid());
    CU(cuGraphDestroy)(capture.end());
    CHECK(emm_capture_end(gpu.emm(), stream) == EMM_OK);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(pool, 1 << 20, stream, &ptr) == EMM_OK);
    CHECK(emm_memfree(pool, ptr, 1 << 20, stream) == EMM_OK);
    CHECK(emm_stream_retire(gpu.emm(), stream) == EMM_OK);
}

TEST_CASE("a pool that ends while another has portable memory leaves a capture whole") {
    const Gpu gpu;
    emm_context *pool = context_named(gpu.emm(), "ends-in-a-capture");
    void *host = nullptr;
    emm_deviceptr device = 0;
    REQUIRE(emm_memhostalloc(gpu.emm(), 4096, EMM_HOST_PORTABLE, &host, &device) == EMM_OK);
    const CUstream stream = gpu.make_stream();
    REQUIRE(emm_capture_begin(gpu.emm(), stream) == EMM_OK);
    const Capture capture(stream);
    CHECK(emm_context_retire(pool) == EMM_OK);
    CHECK(capture.valid());
    CU(cuGraphDestroy)(capture.end());
    CHECK(emm_capture_end(gpu.emm(), stream) == EMM_OK);
    CHECK(emm_memhostfree(gpu.emm(), host, 4096, EMM_HOST_PORTABLE, EMM_STREAM_UNORDERED) ==
          EMM_OK);
}

TEST_CASE("memory freed on a capturing stream stays until the graph and its instances are gone") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const uint64_t before = races();
    const Capture capture(stream);
    const emm_deviceptr scratch = gpu.allocate(1 << 20, stream);
    fill(scratch, 1 << 20, 9, stream);
    CHECK(gpu.free(scratch, 1 << 20, stream) == EMM_OK);
    CHECK(gpu.free(scratch, 1 << 20, stream) == EMM_E_NOT_OWNED);
    CHECK(capture.valid());
    const CUgraph graph = capture.end();
    const CUgraphExec exec = instantiate(graph);
    REQUIRE(CU(cuGraphDestroy)(graph) == CUDA_SUCCESS);
    expect_kept(gpu, exec, scratch, stream);
    CHECK(gpu.stats().pending_bytes >= size_t(1) << 20);
    REQUIRE(CU(cuGraphExecDestroy)(exec) == CUDA_SUCCESS);
    // The driver reports it later, and pool looks for it only when it next runs short.
    while (plugin_name() != "pool" && gpu.stats().pending_bytes >= size_t(1) << 20) {
        CHECK(gpu.free(gpu.allocate(4096), 4096) == EMM_OK);
    }
    CHECK(races() == before);
}

TEST_CASE("a trim gives back what was freed in a capture, once the graph is gone", "[sim]") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const uint64_t before = device_bytes();
    const emm_deviceptr ptr = gpu.allocate(64 << 20, stream);
    const Capture capture(stream);
    CHECK(gpu.free(ptr, 64 << 20, stream) == EMM_OK);
    const CUgraph graph = capture.end();
    CHECK(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK(device_bytes() >= before + (64 << 20));
    CHECK(CU(cuGraphDestroy)(graph) == CUDA_SUCCESS);
    CHECK(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK(device_bytes() < before + (64 << 20));
    CHECK(gpu.stats().pending_bytes == 0);
}

TEST_CASE("an executable graph keeps what the graph of its last update frees") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const uint64_t before = races();
    CUgraphExecUpdateResultInfo info = {};
    const auto capture = [&](emm_deviceptr &ret_scratch, unsigned value) {
        const Capture capture(stream);
        ret_scratch = gpu.allocate(1 << 20, stream);
        fill(ret_scratch, 1 << 20, value, stream);
        CHECK(gpu.free(ret_scratch, 1 << 20, stream) == EMM_OK);
        return capture.end();
    };
    emm_deviceptr first = 0, second = 0;
    const CUgraph was = capture(first, 8), is = capture(second, 9);
    const CUgraphExec exec = instantiate(was);
    REQUIRE(CU(cuGraphDestroy)(was) == CUDA_SUCCESS);
    REQUIRE(CU(cuGraphExecUpdate)(exec, is, &info) == CUDA_SUCCESS);
    REQUIRE(CU(cuGraphDestroy)(is) == CUDA_SUCCESS);
    expect_kept(gpu, exec, second, stream);
    REQUIRE(CU(cuGraphExecDestroy)(exec) == CUDA_SUCCESS);
    CHECK(races() == before);
}

TEST_CASE("memory that other streams have used stays the graph's when it is freed in a capture") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream(), other = gpu.make_stream();
    const uint64_t before = races();
    const emm_deviceptr scratch = gpu.allocate(1 << 20, stream);
    emm_record_use(gpu.emm(), scratch, 1 << 20, other); // not every plugin can
    const Capture capture(stream);
    fill(scratch, 1 << 20, 9, stream);
    CHECK(gpu.free(scratch, 1 << 20, stream) == EMM_OK);
    CHECK(capture.valid());
    const CUgraph graph = capture.end();
    const CUgraphExec exec = instantiate(graph);
    REQUIRE(CU(cuGraphDestroy)(graph) == CUDA_SUCCESS);
    expect_kept(gpu, exec, scratch, stream);
    REQUIRE(CU(cuGraphExecDestroy)(exec) == CUDA_SUCCESS);
    CHECK(races() == before);
}

TEST_CASE("an unordered free while a capture is announced waits, and leaves it whole") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream(), other = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(1 << 20);
    fill(ptr, 1 << 20, 3, other);
    REQUIRE(emm_capture_begin(gpu.emm(), stream) == EMM_OK);
    const Capture capture(stream);
    CHECK(gpu.free(ptr, 1 << 20) == EMM_OK);
    CHECK(gpu.stats().pending_bytes == size_t(1) << 20);
    CHECK(capture.valid());
    CU(cuGraphDestroy)(capture.end());
    REQUIRE(emm_capture_end(gpu.emm(), stream) == EMM_OK);
    REQUIRE(emm_context_reset(gpu.emm()) == EMM_OK);
    CHECK(gpu.stats().pending_bytes == 0);
}

TEST_CASE("unordered frees beside a capture serve a request before it fails, and leave it whole") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream(), other = gpu.make_stream();
    const size_t size = most_bytes() / 4;
    const uint64_t before = races();
    REQUIRE(emm_capture_begin(gpu.emm(), stream) == EMM_OK);
    const Capture capture(stream);
    for (int i = 0; i < 9; i++) {
        const emm_deviceptr ptr = gpu.allocate(size);
        fill(ptr, 1 << 20, 3, other);
        CHECK(gpu.free(ptr, size) == EMM_OK);
    }
    CHECK(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK(gpu.stats().pending_bytes == 0);
    CHECK(capture.valid());
    CU(cuGraphDestroy)(capture.end());
    REQUIRE(emm_capture_end(gpu.emm(), stream) == EMM_OK);
    CHECK(races() == before);
}

TEST_CASE("memory is freed on a stream whose capture was invalidated, and goes back afterwards") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(1 << 20, stream);
    REQUIRE(emm_capture_begin(gpu.emm(), stream) == EMM_OK);
    const Capture capture(stream);
    CHECK(CU(cuStreamSynchronize)(stream) != CUDA_SUCCESS);
    CHECK_FALSE(capture.valid());
    emm_deviceptr more = 0;
    const emm_status status = emm_memalloc(gpu.emm(), 4096, stream, &more);
    CHECK((status == EMM_OK || status == EMM_E_CAPTURING)); // pool refuses
    CHECK(gpu.free(ptr, 1 << 20, stream) == EMM_OK);
    CUgraph none = nullptr;
    CHECK(CU(cuStreamEndCapture)(stream, &none) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    REQUIRE(emm_capture_end(gpu.emm(), stream) == EMM_OK);
    REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK(gpu.stats().pending_bytes == 0);
}

TEST_CASE("the legacy stream is served while a stream that synchronizes with it captures") {
    const Gpu gpu;
    const CUstream blocking = gpu.make_stream(CU_STREAM_DEFAULT);
    const emm_deviceptr before = gpu.allocate(4096);
    const Capture capture(blocking);
    const emm_deviceptr ptr = gpu.allocate(4096, EMM_STREAM_LEGACY);
    CHECK(ptr != 0);
    CHECK(gpu.free(before, 4096, blocking) == EMM_OK);
    CHECK(gpu.free(gpu.allocate(4096, EMM_STREAM_LEGACY), 4096, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(capture.valid());
    CU(cuGraphDestroy)(capture.end());
    CHECK(gpu.free(ptr, 4096) == EMM_OK);
}

TEST_CASE("a reset while a capture is announced orders what it drops, and leaves it whole") {
    const Gpu gpu;
    const CUstream captured = gpu.make_stream(), other = gpu.make_stream();
    const uint64_t before = races();
    const emm_deviceptr early = gpu.allocate(1 << 20, other);
    REQUIRE(emm_capture_begin(gpu.emm(), captured) == EMM_OK);
    const Capture capture(captured);
    gpu.allocate(1 << 20, captured);
    gpu.allocate(1 << 20, other);
    CHECK(gpu.free(early, 1 << 20) == EMM_OK);
    CHECK(emm_context_reset(gpu.emm()) == EMM_OK);
    CHECK(gpu.stats().live_count == 0);
    CHECK(capture.valid());
    CHECK(races() == before);
    CU(cuGraphDestroy)(capture.end());
    REQUIRE(emm_capture_end(gpu.emm(), captured) == EMM_OK);
    CHECK(gpu.free(gpu.allocate(4096), 4096) == EMM_OK);
}

TEST_CASE("retiring while a capture is announced gives everything back, and leaves it whole") {
    const Gpu gpu;
    const CUstream captured = gpu.make_stream(), other = gpu.make_stream();
    const uint64_t before = races(), bytes = device_bytes();
    REQUIRE(emm_capture_begin(gpu.emm(), captured) == EMM_OK);
    const Capture capture(captured);
    gpu.allocate(4 << 20, other);
    gpu.allocate(4 << 20, captured);
    CHECK(emm_context_retire(gpu.emm()) == EMM_OK);
    CHECK(capture.valid());
    CHECK(races() == before);
    CU(cuGraphDestroy)(capture.end());
    CHECK(device_bytes() <= bytes);
}

TEST_CASE("a pool that ends in a capture while the device is full gives everything back", "[sim]") {
    const Gpu gpu;
    const uint64_t bytes = device_bytes();
    const CUstream captured = gpu.make_stream();
    for (const auto end : {emm_context_reset, emm_context_retire}) {
        emm_context *pool = context_named(gpu.emm(), "full");
        allocate_in(pool, 4 << 20);
        REQUIRE(emm_capture_begin(gpu.emm(), captured) == EMM_OK);
        const Capture capture(captured);
        fail_next("cuMemAlloc@1+:2");
        const emm_status status = end(pool);
        CHECK((status == EMM_OK || end == emm_context_reset)); // a reset may be refused
        fail_next(nullptr);
        CHECK(capture.valid());
        CU(cuGraphDestroy)(capture.end());
        REQUIRE(emm_capture_end(gpu.emm(), captured) == EMM_OK);
        if (end == emm_context_reset) {
            CHECK(emm_context_reset(pool) == EMM_OK);
            CHECK(emm_trim(pool, 0, nullptr) == EMM_OK);
        }
        CHECK(device_bytes() <= bytes);
    }
}

TEST_CASE("a reset that cannot make its context current leaves another's capture whole", "[sim]") {
    const Gpu reset, capturing; // the latter stays current
    const Capture capture(capturing.make_stream());
    for (int nth = 1; nth <= 6; nth++) {
        reset.allocate(8 << 20);
        fail_next(("cuCtxPushCurrent@" + std::to_string(nth)).c_str());
        fail_next("cuMemAlloc@1:2"); // the device is full
        emm_context_reset(reset.emm());
        fail_next(nullptr);
        CHECK(capture.valid());
    }
    CU(cuGraphDestroy)(capture.end());
    CHECK(emm_context_reset(reset.emm()) == EMM_OK);
}

TEST_CASE("reset takes what graphs still hold") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const Capture capture(stream);
    const emm_deviceptr scratch = gpu.allocate(1 << 20, stream);
    CHECK(gpu.free(scratch, 1 << 20, stream) == EMM_OK);
    const CUgraph graph = capture.end();
    REQUIRE(emm_context_reset(gpu.emm()) == EMM_OK);
    CHECK(gpu.stats().pending_bytes == 0);
    REQUIRE(CU(cuGraphDestroy)(graph) == CUDA_SUCCESS);
    CHECK(gpu.free(gpu.allocate(4096), 4096) == EMM_OK);
}

TEST_CASE("a change of the capture mode that fails is made again, and back again", "[sim]") {
    const Gpu gpu;
    const CUstream captured = gpu.make_stream(), other = gpu.make_stream();
    const Capture capture(captured);
    for (int nth = 1; nth <= 6; nth++) {
        fail_next(("cuThreadExchangeStreamCaptureMode@" + std::to_string(nth)).c_str());
        CHECK(gpu.free(gpu.allocate(8 << 20, other), 8 << 20, other) == EMM_OK);
        fail_next(nullptr);
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        REQUIRE(CU(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS);
        CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
    CHECK(capture.valid());
    CU(cuGraphDestroy)(capture.end());
}
