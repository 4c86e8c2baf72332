// managed alone: memory beyond the device, the places of its pages, and discarded memory.
#include "gpu.h"

namespace {

constexpr size_t mib = 1 << 20;

struct Calls {
    uint64_t prefetches = calls_of("cuMemPrefetchAsync");
    uint64_t discards = calls_of("cuMemDiscardBatchAsync");
};

struct Figures {
    explicit Figures(const Gpu &gpu) {
        REQUIRE(emm_get_memory_info(gpu.emm(), &free, &total) == EMM_OK);
    }
    size_t free = 0, total = 0;
};

emm_status request(const Gpu &gpu, size_t size) {
    emm_deviceptr ptr = 0;
    return emm_memalloc(gpu.emm(), size, EMM_STREAM_UNORDERED, &ptr);
}

} // namespace

TEST_CASE("twice the device's memory can be had, and the figures stay the device's", "[sim]") {
    const Gpu gpu;
    const size_t device = Figures(gpu).total, size = device / 4 * 3;
    CHECK(device == size_t(8) << 30);
    const emm_deviceptr one = gpu.allocate(size);
    CHECK(Figures(gpu).free == device - size);
    const emm_deviceptr other = gpu.allocate(size);
    CHECK(Figures(gpu).total == device);
    CHECK(Figures(gpu).free == 0);
    CHECK(request(gpu, size) == EMM_E_OUT_OF_MEMORY);
    fill(one + size - 4096, 4096, 1, nullptr);
    fill(other, 4096, 2, nullptr);
    CHECK(last_word(one, size) == 1);
    CHECK(last_word(other, 4096) == 2);
    CHECK(gpu.free(one, size) == EMM_OK);
    const emm_deviceptr again = gpu.allocate(size);
    CHECK(gpu.free(again, size) == EMM_OK);
    CHECK(gpu.free(other, size) == EMM_OK);
}

TEST_CASE("each block is prefetched, beside a capture too, and the capture stays valid", "[sim]") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const Calls before;
    const emm_deviceptr any = gpu.allocate(mib), ordered = gpu.allocate(mib, stream);
    CHECK(Calls().prefetches == before.prefetches + 2);
    REQUIRE(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    const emm_deviceptr captured = gpu.allocate(mib, stream);
    CUgraph graph = nullptr;
    REQUIRE(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
    CHECK(Calls().prefetches == before.prefetches + 3);
    REQUIRE(CU(cuGraphDestroy)(graph) == CUDA_SUCCESS);
    for (const emm_deviceptr ptr : {any, ordered, captured}) {
        CHECK(gpu.free(ptr, mib) == EMM_OK);
    }
}

TEST_CASE("a request whose prefetch fails is served", "[sim]") {
    const Gpu gpu;
    fail_next("cuMemPrefetchAsync@1");
    const emm_deviceptr ptr = gpu.allocate(mib);
    fail_next(nullptr);
    CHECK(gpu.free(ptr, mib) == EMM_OK);
}

TEST_CASE("what is freed is discarded where the free's stream orders all its uses", "[sim]") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream(), other = gpu.make_stream();
    const auto discards = [&](emm_stream from, emm_stream until, bool used_elsewhere) {
        const Calls before;
        const emm_deviceptr ptr = gpu.allocate(mib, from);
        if (used_elsewhere) {
            REQUIRE(emm_record_use(gpu.emm(), ptr, mib, other) == EMM_OK);
        }
        CHECK(gpu.free(ptr, mib, until) == EMM_OK);
        return Calls().discards - before.discards;
    };
    CHECK(discards(stream, stream, false) == 1);
    CHECK(discards(stream, stream, true) == 0);
    CHECK(discards(stream, stream, false) == 1); // the use was that block's alone
    CHECK(discards(stream, EMM_STREAM_UNORDERED, false) == 0);
    CHECK(discards(EMM_STREAM_UNORDERED, stream, false) == 0); // its prefetch may still run
    CHECK(discards(other, stream, false) == 0);                // likewise
    CHECK(discards(EMM_STREAM_PER_THREAD, EMM_STREAM_PER_THREAD, false) == 0); // unknown thread
    CHECK(discards(EMM_STREAM_LEGACY, EMM_STREAM_LEGACY, false) == 0);         // forbidden
}

TEST_CASE("a new stream with the handle of a destroyed one does not order its uses", "[sim]") {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream();
    const emm_deviceptr ptr = gpu.allocate(mib, stream);
    REQUIRE(CU(cuStreamDestroy)(stream) == CUDA_SUCCESS);
    const CUstream another = gpu.make_stream();
    REQUIRE(another == stream);
    const Calls before;
    CHECK(gpu.free(ptr, mib, another) == EMM_OK);
    CHECK(Calls().discards == before.discards);
}

TEST_CASE("an export of managed memory is refused, and says who has memory to share") {
    const Gpu gpu;
    const emm_deviceptr ptr = gpu.allocate(mib);
    emm_ipc_handle handle = {};
    CHECK(emm_get_ipc_handle(gpu.emm(), ptr, mib, &handle) == EMM_E_NOT_SUPPORTED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("async:ipc=1"));
    CHECK(gpu.free(ptr, mib) == EMM_OK);
    CHECK(emm_get_ipc_handle(gpu.emm(), ptr, mib, &handle) == EMM_E_NOT_OWNED);
}

TEST_CASE("a limit of nothing is refused where it is chosen") {
    auto info = sized<emm_plugin_info>();
    for (const std::string plugin : {"managed", "async"}) {
        CHECK(emm_probe_plugin((plugin + ":max=0").c_str(), &info) == EMM_E_PLUGIN_SPEC);
        CHECK_THAT(emm_last_error()->text,
                   ContainsSubstring(plugin + ": option max: expected at least 1, found 0"));
        CHECK(emm_probe_plugin((plugin + ":max=1").c_str(), &info) == EMM_OK);
    }
}

// For EMM_PLUGIN=managed:max=1GiB.
TEST_CASE("max bounds what is taken, and the figures where it is below the device", "[.max]") {
    const Gpu gpu;
    const size_t size = 384 * mib;
    size_t told = 0;
    REQUIRE(emm_get_device_total(0, &told) == EMM_OK);
    CHECK(told == 1024 * mib);
    const emm_deviceptr one = gpu.allocate(size), other = gpu.allocate(size);
    CHECK(Figures(gpu).total == 1024 * mib);
    CHECK(Figures(gpu).free == 256 * mib);
    CHECK(request(gpu, size) == EMM_E_OUT_OF_MEMORY);
    CHECK(emm_last_error()->driver_result == 0);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("max") && !ContainsSubstring("cuMem"));
    CHECK(gpu.free(one, size) == EMM_OK);
    const emm_deviceptr again = gpu.allocate(size); // pending memory is freed for it
    CHECK(gpu.free(again, size) == EMM_OK);
    CHECK(gpu.free(other, size) == EMM_OK);
}
