// PyTorch's pluggable allocator.
#include "client.h"

#include <exception>
#include <thread>

TEST_CASE("PyTorch's empty tensors have address 0 and cost nothing") {
    const uint64_t before = stats().allocations;
    void *ptr = emm_torch_malloc(0, 0, nullptr);
    CHECK(ptr == nullptr);
    emm_torch_free(ptr, 0, 0, nullptr);
    CHECK(stats().allocations == before);
}

TEST_CASE("PyTorch's memory goes back from any thread") {
    const uint64_t before = stats().live_bytes;
    void *ptr = emm_torch_malloc(1 << 20, 0, nullptr);
    REQUIRE(ptr != nullptr);
    CHECK(stats().live_bytes == before + (1 << 20));
    std::thread([ptr] { emm_torch_free(ptr, 1 << 20, 0, nullptr); }).join();
    CHECK(stats().live_bytes == before);
}

TEST_CASE("PyTorch's functions for a named pool allocate there, the same for the same name") {
    TorchMalloc malloc = nullptr, other = nullptr;
    TorchFree free = nullptr, other_free = nullptr;
    REQUIRE(emm_torch_pool("kv-cache", nullptr, &malloc, &free) == EMM_OK);
    REQUIRE(emm_torch_pool("weights", nullptr, &other, &other_free) == EMM_OK);
    CHECK(malloc != other);
    REQUIRE(emm_torch_pool("kv-cache", nullptr, &other, &other_free) == EMM_OK);
    CHECK(malloc == other);
    free(nullptr, 0, 0, nullptr); // makes no context
    void *ptr = malloc(1 << 20, 0, nullptr);
    REQUIRE(ptr != nullptr);
    emm_context *pool = context_named(gpu(), "kv-cache");
    CHECK(stats_of(pool).live_bytes == 1 << 20);
    CHECK(stats().live_bytes == 0);
    free(ptr, 1 << 20, 0, nullptr);
    CHECK(stats_of(pool).live_bytes == 0);
    CHECK(emm_torch_pool("", nullptr, &malloc, &free) == EMM_E_INVALID_VALUE);
    REQUIRE(emm_torch_pool("no name", nullptr, &malloc, &free) == EMM_OK);
    CHECK(contains(thrown_by([&] { malloc(256, 0, nullptr); }), "a pool's name: expected"));
}

TEST_CASE("a 17th named pool for PyTorch is refused") {
    TorchMalloc malloc = nullptr;
    TorchFree free = nullptr;
    for (int i = 0; i < 16; i++) {
        CHECK(emm_torch_pool(std::to_string(i).c_str(), nullptr, &malloc, &free) == EMM_OK);
    }
    malloc = nullptr;
    CHECK(emm_torch_pool("16", nullptr, &malloc, &free) == EMM_E_BUSY);
    CHECK(malloc == nullptr);
}

TEST_CASE("PyTorch out of memory is told so in its own words, with the bytes") {
    const std::string text = thrown_by([] { emm_torch_malloc(ssize_t(too_much), 0, nullptr); });
    CHECK(text.rfind("CUDA out of memory. Tried to allocate", 0) == 0);
    CHECK(contains(text, std::to_string(too_much) + " bytes on device 0"));
    CHECK(contains(text, "bytes free"));
}

TEST_CASE("after it has caught what an allocation throws, a program has no exception in flight") {
    thrown_by([] { emm_torch_malloc(ssize_t(too_much), 0, nullptr); });
    CHECK(std::uncaught_exceptions() == 0);
    thrown_by([] { emm_torch_malloc(-1, 0, nullptr); });
    CHECK(std::uncaught_exceptions() == 0);
}

TEST_CASE("what PyTorch cannot be given for another reason is not called out of memory") {
    const std::string text = thrown_by([] { emm_torch_malloc(256, 999, nullptr); });
    CHECK(contains(text, "256 bytes on device 999"));
    CHECK_FALSE(contains(text, "out of memory"));
    CHECK(contains(thrown_by([] { emm_torch_malloc(-1, 0, nullptr); }), "-1"));
}

TEST_CASE("PyTorch's memory is used on other streams") {
    make_current();
    CUstream stream = nullptr, other = nullptr;
    REQUIRE(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    void *ptr = emm_torch_malloc(4096, 0, stream);
    emm_torch_record_stream(ptr, other);
    emm_torch_record_stream(nullptr, other);
    emm_torch_free(ptr, 4096, 0, stream);
    CHECK(stats().live_bytes == 0);
    REQUIRE(CU(cuStreamSynchronize)(other) == CUDA_SUCCESS);
}

TEST_CASE("a use of memory that is not emm's is refused") {
    gpu();
    emm_torch_free(emm_torch_malloc(256, 0, nullptr), 256, 0, nullptr);
    int local = 0;
    CHECK(contains(thrown_by([&] { emm_torch_record_stream(&local, nullptr); }), "another stream"));
}

TEST_CASE("PyTorch announces captures, and what it frees meanwhile stays good") {
    make_current();
    CUstream stream = nullptr;
    REQUIRE(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    void *param = nullptr;
    void *outside = emm_cupy_malloc(param, 4096, 0);
    emm_torch_begin_allocate_to_pool(0, {1, 0},
                                     [stream](emm_stream asked) { return asked == stream; });
    REQUIRE(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    emm_cupy_free(param, outside, 0); // unordered: an event on the context would end the capture
    CUgraph graph = nullptr;
    REQUIRE(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
    emm_torch_end_allocate_to_pool(0, {1, 0});
    CHECK(emm_capture_end(gpu(), nullptr) == EMM_E_INVALID_VALUE); // no capture is left announced
    CU(cuGraphDestroy)(graph);
}

TEST_CASE("emptying PyTorch's cache returns memory to the driver") {
    emm_torch_free(emm_torch_malloc(64 << 20, 0, nullptr), 64 << 20, 0, nullptr);
    emm_torch_empty_cache();
    CHECK(stats().reserved_bytes == stats().pending_bytes); // passthrough frees a little later
}

TEST_CASE("what PyTorch frees after the end is a success that does nothing") {
    void *ptr = emm_torch_malloc(4096, 0, nullptr);
    REQUIRE(emm_shutdown() == EMM_OK);
    const uint64_t before = late_frees();
    emm_torch_free(ptr, 4096, 0, nullptr);
    CHECK(late_frees() == before + 1);
    CHECK(contains(thrown_by([] { emm_torch_malloc(4096, 0, nullptr); }), "emm cannot allocate"));
}
