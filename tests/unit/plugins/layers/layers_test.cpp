// Behaviour: count, fault and guard, over passthrough, as an application sees them.
#include "gpu.h"

#include <algorithm>
#include <string>
#include <vector>

namespace {

std::string &log_text = *new std::string; // count logs when the process ends

emm_context *on(const char *spec) {
    expect_ok(emm_set_plugin(spec));
    REQUIRE(emm_set_log_callback(
                EMM_LOG_INFO,
                [](int32_t, const char *text, void *) { log_text += std::string(text) + "\n"; },
                nullptr) == EMM_OK);
    emm_context *context = context_for_device();
    log_text.clear();
    return context;
}

emm_deviceptr alloc(emm_context *context, size_t size) {
    return allocate_in(context, size, EMM_STREAM_LEGACY);
}

emm_status free(emm_context *context, emm_deviceptr ptr, size_t size) {
    return emm_memfree(context, ptr, size, EMM_STREAM_LEGACY);
}

bool is_mapped(emm_deviceptr ptr) {
    CUdeviceptr base = 0;
    size_t size = 0;
    return CU(cuMemGetAddressRange)(&base, &size, ptr) == CUDA_SUCCESS;
}

void write_byte(emm_context *context, emm_deviceptr ptr, unsigned char value) {
    REQUIRE(CU(cuCtxSetCurrent)(info_of(context).cuda_context) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemcpyHtoD)(ptr, &value, 1) == CUDA_SUCCESS);
}

CUgraph graph_that_frees(const Gpu &gpu, emm_deviceptr ptr, size_t size, CUstream stream) {
    CUgraph graph = nullptr;
    REQUIRE(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(gpu.free(ptr, size, stream) == EMM_OK);
    REQUIRE(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
    return graph;
}

// Whether each of twenty requests is served.
std::vector<bool> served(emm_context *context) {
    std::vector<bool> told;
    for (int i = 0; i < 20; i++) {
        emm_deviceptr ptr = 0;
        told.push_back(emm_memalloc(context, 1000, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
        emm_memfree(context, ptr, 0, EMM_STREAM_LEGACY);
    }
    return told;
}

} // namespace

TEST_CASE("count tells what was asked for and freed") {
    emm_context *const context = on("count:every=2+passthrough");
    CHECK(free(context, alloc(context, 1000), 1000) == EMM_OK);
    alloc(context, 2000);
    CHECK_THAT(log_text,
               ContainsSubstring("count: 2 requests of 3000 bytes, of which 0 failed; 1 frees"));
}

TEST_CASE("count does not count a free that is refused") {
    emm_context *const context = on("count:every=2+passthrough");
    const emm_deviceptr ptr = alloc(context, 1000);
    CHECK(free(context, ptr, 999) == EMM_E_INVALID_VALUE);
    CHECK(free(context, ptr, 1000) == EMM_OK);
    alloc(context, 2000);
    CHECK_THAT(log_text, ContainsSubstring("; 1 frees"));
}

TEST_CASE("fault fails the Nth request, and emm's repetitions of it, and no other") {
    emm_context *const context = on("fault:nth=2+passthrough");
    alloc(context, 1000);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 1000, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(emm_last_error()->text,
               ContainsSubstring("layer fault: this request of 1000 bytes was to fail"));
    alloc(context, 1000);
}

TEST_CASE("a fault that happens once is repeated by emm, and the program does not see it") {
    emm_context *const context = on("fault:nth=1,times=1+passthrough");
    alloc(context, 1000);
    CHECK(counters().memory_retries == 1);
}

TEST_CASE("fault fails every Nth request") {
    const std::vector<bool> told = served(on("fault:every=5+passthrough"));
    for (size_t i = 0; i < told.size(); i++) {
        CHECK(told[i] == ((i + 1) % 5 != 0));
    }
}

TEST_CASE("a repetition of a failed request does not count as another request") {
    emm_context *const context = on("fault:every=2,times=1+passthrough");
    CHECK(served(context) == std::vector<bool>(20, true));
    CHECK(counters().memory_retries == 10);
}

TEST_CASE("a fault of every request that happens once is seen by emm alone") {
    CHECK(served(on("fault:every=1,times=1+passthrough")) == std::vector<bool>(20, true));
}

TEST_CASE("a fault that never happens fails nothing") {
    CHECK(served(on("fault:every=1,times=0+passthrough")) == std::vector<bool>(20, true));
}

TEST_CASE("fault fails a share of the requests, the same ones for the same seed") {
    emm_context *const context = on("fault:share=0.5,seed=7+passthrough");
    emm_context *again = context_named(context, "again");
    const std::vector<bool> told = served(context);
    CHECK(told == served(again));
    CHECK(std::count(told.begin(), told.end(), true) > 3);
    CHECK(std::count(told.begin(), told.end(), false) > 3);
}

TEST_CASE("a share above 1 is refused where it is chosen") {
    CHECK(emm_set_plugin("fault:share=1.5+passthrough") == EMM_E_PLUGIN_SPEC);
    CHECK_THAT(emm_last_error()->text,
               ContainsSubstring("layer ") &&
                   ContainsSubstring("option share: expected 0 to 1, found 1.5"));
}

TEST_CASE("a guarded block ends where nothing is mapped") {
    emm_context *const context = on("guard+passthrough");
    const emm_deviceptr ptr = alloc(context, 1024);
    CHECK(is_mapped(ptr + 1023));
    CHECK_FALSE(is_mapped(ptr + 1024));
    CHECK(free(context, ptr, 1024) == EMM_OK);
}

TEST_CASE("a guarded block begins where nothing is mapped, if it is to") {
    emm_context *const context = on("guard:place=begin+passthrough");
    const emm_deviceptr ptr = alloc(context, 1000);
    CHECK(is_mapped(ptr));
    CHECK_FALSE(is_mapped(ptr - 1));
}

TEST_CASE("a freed block's addresses are not mapped, and stay so for as many frees as was said") {
    emm_context *const context = on("guard:quarantine=1+passthrough");
    const emm_deviceptr first = alloc(context, 1024);
    CHECK(free(context, first, 1024) == EMM_OK);
    CHECK_FALSE(is_mapped(first));
    CHECK(alloc(context, 1024) != first);
}

TEST_CASE("a maximum of the plugin holds for guarded blocks, and is what the program is told of") {
    emm_context *const context = on("guard+pool:max=8MiB");
    const emm_deviceptr ptr = alloc(context, 5 << 20);
    size_t free_bytes = 0, total = 0;
    CHECK(emm_get_memory_info(context, &free_bytes, &total) == EMM_OK);
    CHECK(total == 8 << 20);
    CHECK(free_bytes == 2 << 20);
    emm_deviceptr more = 0;
    CHECK(emm_memalloc(context, 3 << 20, EMM_STREAM_LEGACY, &more) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(emm_last_error()->text,
               ContainsSubstring("layer guard: a block takes 4194304 bytes"));
    CHECK(free(context, ptr, 5 << 20) == EMM_OK);
    more = alloc(context, 8 << 20);
    CHECK(free(context, more, 8 << 20) == EMM_OK);
}

TEST_CASE("memory that guard cannot give back counts until it can") {
    emm_context *const context = on("guard+passthrough");
    const auto reserved = [&] {
        const emm_stats stats = stats_of(context);
        CHECK(stats.peak_reserved_bytes >= stats.reserved_bytes);
        return stats.reserved_bytes;
    };
    emm_deviceptr ptr = 0;
    fail_next("cuMemSetAccess@1:999");
    fail_next("cuMemUnmap@1:999");
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) < EMM_OK);
    fail_next(nullptr);
    CHECK(reserved() == 2 << 20);
    CHECK(emm_trim(context, 0, nullptr) == EMM_OK);
    CHECK(reserved() == 0);
}

TEST_CASE("a deferred section ends in guard even if its end fails below") {
    emm_context *const context = on("guard+async");
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    const emm_deviceptr ptr = alloc(context, 1024);
    CHECK(free(context, ptr, 1024) == EMM_OK);
    CHECK(is_mapped(ptr));
    fail_next("cuMemPoolSetAttribute@1:999");
    CHECK(emm_defer_cleanup_end(context) == EMM_E_DRIVER);
    fail_next(nullptr);
    CHECK_FALSE(is_mapped(ptr));
    CHECK(emm_defer_cleanup_end(context) == EMM_E_INVALID_VALUE);
}

TEST_CASE("a write to the bytes behind a guarded block is told when it is freed") {
    emm_context *const context = on("guard+passthrough");
    const emm_deviceptr ptr = alloc(context, 1000);
    write_byte(context, ptr + 999, 1);
    write_byte(context, ptr + 1002, 1);
    CHECK(free(context, ptr, 1000) == EMM_OK);
    CHECK_THAT(log_text, ContainsSubstring("guard: byte 3 behind block") &&
                             ContainsSubstring("of 1000 bytes was written; it was allocated by"));
}

TEST_CASE("a guarded block that is freed twice is told with who allocated and who freed it") {
    emm_context *const context = on("guard+passthrough");
    const emm_deviceptr ptr = alloc(context, 1000);
    CHECK(free(context, ptr, 1000) == EMM_OK);
    CHECK(log_text.empty());
    CHECK(free(context, ptr, 1000) == EMM_E_NOT_OWNED);
    CHECK_THAT(log_text, ContainsSubstring("guard: a wrong free of 0x") &&
                             ContainsSubstring(" with size 1000, by ") &&
                             ContainsSubstring("; it was allocated by ") &&
                             ContainsSubstring(" and freed by ") &&
                             ContainsSubstring("test-layers"));
}

TEST_CASE("a guarded block that is freed with another size stays, and is told") {
    emm_context *const context = on("guard+passthrough");
    const emm_deviceptr ptr = alloc(context, 1000);
    CHECK(free(context, ptr, 999) == EMM_E_INVALID_VALUE);
    CHECK_THAT(log_text, ContainsSubstring("with size 999, by ") &&
                             ContainsSubstring("test-layers") && !ContainsSubstring("freed by"));
    CHECK(free(context, ptr, 1000) == EMM_OK);
}

TEST_CASE("what a capture has freed is not unmapped before the device is done with it") {
    on("guard+passthrough");
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(1024, stream);
    fill(ptr, 1024, 1, stream);
    CU(cuGraphDestroy)(graph_that_frees(gpu, ptr, 1024, stream));
    gpu.allocate(1024, stream);
    CHECK(races() == 0);
    REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK_FALSE(is_mapped(ptr));
    CHECK(races() == 0);
}

TEST_CASE("a write behind a guarded block is told too if a capture has freed it") {
    on("guard+passthrough");
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(1000, stream);
    write_byte(gpu.emm(), ptr + 1002, 1);
    CU(cuGraphDestroy)(graph_that_frees(gpu, ptr, 1000, stream));
    REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK_THAT(log_text, ContainsSubstring("guard: byte 3 behind block"));
}

TEST_CASE(
    "a write behind a guarded block is told too if it is freed while a capture is announced") {
    on("guard+passthrough");
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(1000);
    write_byte(gpu.emm(), ptr + 1002, 1);
    REQUIRE(emm_stream_register(gpu.emm(), stream) == EMM_OK);
    REQUIRE(emm_capture_begin(gpu.emm(), stream) == EMM_OK);
    CHECK(gpu.free(ptr, 1000) == EMM_OK);
    CHECK_FALSE(is_mapped(ptr));
    CHECK_THAT(log_text, ContainsSubstring("guard: byte 3 behind block"));
    REQUIRE(emm_capture_end(gpu.emm(), stream) == EMM_OK);
}

TEST_CASE("a free on the legacy stream beside a capture waits for the capture's end over guard") {
    on("guard+passthrough");
    const Gpu gpu;
    const CUstream stream = gpu.make_stream(CU_STREAM_DEFAULT);
    const emm_deviceptr ptr = gpu.allocate(1024, EMM_STREAM_LEGACY);
    REQUIRE(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    CHECK(gpu.free(ptr, 1024, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(is_mapped(ptr));
    CUgraph graph = nullptr;
    CHECK(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
    CU(cuGraphDestroy)(graph);
    REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK_FALSE(is_mapped(ptr));
}

TEST_CASE("a free on a stream whose capture was invalidated waits for its end over guard") {
    on("guard+passthrough");
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(1024, stream);
    REQUIRE(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(CU(cuStreamSynchronize)(stream) != CUDA_SUCCESS);
    CHECK(gpu.free(ptr, 1024, stream) == EMM_OK);
    CHECK(is_mapped(ptr));
    CUgraph none = nullptr;
    CHECK(CU(cuStreamEndCapture)(stream, &none) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK_FALSE(is_mapped(ptr));
}

TEST_CASE("a second free is told with the first one also while the first one waits") {
    on("guard+passthrough");
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(1000, stream);
    const CUgraph graph = graph_that_frees(gpu, ptr, 1000, stream);
    CHECK(gpu.free(ptr, 1000, stream) == EMM_E_NOT_OWNED);
    CHECK_THAT(log_text, ContainsSubstring("guard: a wrong free of 0x") &&
                             ContainsSubstring(" and freed by "));
    CU(cuGraphDestroy)(graph);
}

TEST_CASE("a reset over guard leaves a capture whole") {
    on("guard+passthrough");
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    gpu.allocate(1000, stream);
    REQUIRE(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(emm_context_reset(gpu.emm()) == EMM_OK);
    CUgraph graph = nullptr;
    CHECK(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
    CU(cuGraphDestroy)(graph);
}

TEST_CASE("a request over guard waits for blocks that another thread is giving back") {
    on("guard+passthrough");
    request_what_another_thread_gives_back();
}

TEST_CASE("retiring frees all of guard's memory and addresses, though the driver refuses once") {
    on("guard+passthrough");
    for (const char *const refused : {"cuMemAddressFree@1:999", "cuMemUnmap@1:999"}) {
        const uint64_t before = objects();
        const Gpu gpu;
        const uint64_t bytes = device_bytes();
        gpu.allocate(1024, EMM_STREAM_LEGACY);
        for (int i = 0; i < 10; i++) {
            CHECK(gpu.free(gpu.allocate(1024, EMM_STREAM_LEGACY), 1024, EMM_STREAM_LEGACY) ==
                  EMM_OK);
        }
        fail_next(refused);
        CHECK(emm_context_retire(gpu.emm()) == EMM_OK);
        fail_next(nullptr);
        CHECK(objects() == before);
        CHECK(device_bytes() == bytes);
    }
}
