// sanitize, over the plugin that EMM_PLUGIN names: its reports to a tool (fixtures/nvtx_tool.cpp),
// and its absence without a tool.
#include "../gpu.h"

#include "../../fixtures/nvtx_tool.h"

#include <cstdlib>
#include <dlfcn.h>
#include <vector>

namespace {

constexpr size_t odd = 1000, large = size_t(9) << 20;

template <class Function> Function *tool(const char *name) {
    void *const library = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(library);
    return reinterpret_cast<Function *>(dlsym(library, name));
}
#define TOLD(name) tool<decltype(nvtx_tool_##name)>("nvtx_tool_" #name)

size_t told_bytes(emm_deviceptr ptr, size_t size) {
    return TOLD(bytes)(ptr, size);
}

} // namespace

TEST_CASE("each block is told with its size, and no byte behind it") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    for (const size_t size : {odd, size_t(1), large, large + odd}) {
        const emm_deviceptr ptr = gpu.allocate(size, stream);
        CHECK(told_bytes(ptr, size) == size);
        CHECK(told_bytes(ptr - 1, size + 2) == size);
        CHECK_THAT(TOLD(name)(ptr), ContainsSubstring("emm block "));
        CHECK(gpu.free(ptr, size, stream) == EMM_OK);
        CHECK(told_bytes(ptr, size) == 0);
    }
}

TEST_CASE("a tool that refuses a heap is told nothing of its blocks") {
    const Gpu gpu;
    TOLD(refuse_heaps)(true);
    const emm_deviceptr ptr = gpu.allocate(large);
    CHECK(told_bytes(ptr, large) == 0);
    CHECK(gpu.free(ptr, large) == EMM_OK);
    REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    TOLD(refuse_heaps)(false);
}

TEST_CASE("blocks beside each other are told apart") {
    const Gpu gpu;
    std::vector<emm_deviceptr> blocks;
    for (int i = 0; i < 100; i++) {
        blocks.push_back(gpu.allocate(odd));
    }
    for (size_t i = 0; i < blocks.size(); i += 2) {
        CHECK(gpu.free(blocks[i], odd) == EMM_OK);
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        CHECK(told_bytes(blocks[i], odd) == (i % 2 ? odd : 0));
    }
}

TEST_CASE("a block is told until the work on it is over", "[sim]") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    for (const emm_stream until : {emm_stream(stream), EMM_STREAM_UNORDERED}) {
        const emm_deviceptr ptr = gpu.allocate(1024, stream);
        CUevent filled = nullptr;
        REQUIRE(CU(cuEventCreate)(&filled, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
        fill(ptr, 1024, 1, stream);
        REQUIRE(CU(cuEventRecord)(filled, stream) == CUDA_SUCCESS);
        CHECK(gpu.free(ptr, 1024, until) == EMM_OK);
        CHECK(CU(cuEventQuery)(filled) == CUDA_SUCCESS);
        CU(cuEventDestroy)(filled);
        CHECK(told_bytes(ptr, 1024) == 0);
    }
}

TEST_CASE("a free that is refused leaves the block told") {
    const Gpu gpu;
    const emm_deviceptr ptr = gpu.allocate(odd);
    CHECK(gpu.free(ptr, odd - 1) < EMM_OK);
    CHECK(gpu.free(ptr + 8, odd) < EMM_OK);
    CHECK(told_bytes(ptr, odd) == odd);
    CHECK(gpu.free(ptr, odd) == EMM_OK);
    CHECK(gpu.free(ptr, odd) < EMM_OK);
}

TEST_CASE("a block that a capture frees is told as long as the graph may use it") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(odd, stream);
    CUgraph graph = nullptr;
    REQUIRE(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(gpu.free(ptr, odd, stream) == EMM_OK);
    REQUIRE(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
    CHECK(told_bytes(ptr, odd) == odd);
    CU(cuGraphDestroy)(graph);
    std::vector<emm_deviceptr> blocks; // one of them has its address, or none has
    for (int i = 0; i < 100; i++) {
        blocks.push_back(gpu.allocate(odd / 2, stream));
        CHECK(told_bytes(blocks.back(), odd / 2) == odd / 2);
    }
}

TEST_CASE("a free in a capture leaves it whole, whatever else has used the block") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream(), other = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(odd, stream);
    REQUIRE(emm_record_use(gpu.emm(), ptr, odd, other) == EMM_OK);
    CUgraph graph = nullptr;
    REQUIRE(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(gpu.free(ptr, odd, stream) == EMM_OK);
    CHECK(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
    CU(cuGraphDestroy)(graph);
}

TEST_CASE("what is given back and taken again is told again") {
    const Gpu gpu;
    for (int i = 0; i < 3; i++) {
        const emm_deviceptr ptr = gpu.allocate(large);
        CHECK(told_bytes(ptr, large) == large);
        CHECK(gpu.free(ptr, large) == EMM_OK);
        REQUIRE(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    }
}

TEST_CASE("a tool is told nothing of memory that is not of cuMemAlloc", "[.other]") {
    const Gpu gpu;
    for (const size_t size : {odd, large}) {
        const emm_deviceptr ptr = gpu.allocate(size);
        CHECK(told_bytes(ptr, size) == 0);
        CHECK_FALSE(TOLD(in_heap)(ptr));
        CHECK(gpu.free(ptr, size) == EMM_OK);
    }
}

TEST_CASE("a reset takes all back from the tool, and so does the context's end") {
    emm_deviceptr first = 0, second = 0;
    {
        const Gpu gpu;
        first = gpu.allocate(odd);
        CHECK(TOLD(in_heap)(first));
        CHECK(emm_context_reset(gpu.emm()) == EMM_OK);
        CHECK(told_bytes(first, odd) == 0);
        CHECK_FALSE(TOLD(in_heap)(first));
        second = gpu.allocate(odd);
        CHECK(TOLD(in_heap)(second));
    }
    CHECK(told_bytes(second, odd) == 0);
    CHECK_FALSE(TOLD(in_heap)(second));
}

TEST_CASE("without a tool the layer has no slots", "[.idle]") {
    void *const library = dlopen(getenv("EMM_TEST_SANITIZE"), RTLD_NOW);
    REQUIRE(library);
    const auto entry = reinterpret_cast<emm_plugin_entry>(dlsym(library, EMM_LAYER_ENTRY_SYMBOL));
    const emm_plugin &table = *entry(nullptr);
    CHECK_FALSE((table.memalloc || table.memfree || table.record_use || table.stream_notice ||
                 table.trim || table.reset));
    CHECK(table.create);
}
