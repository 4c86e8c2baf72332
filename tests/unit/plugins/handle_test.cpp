// Behaviour: handles over every bundled plugin: where addresses come back, and on threads of their
// own.
#include "gpu.h"

#include <thread>
#include <vector>

namespace {

emm_memory *allocated(const Gpu &gpu, size_t size = 1 << 20) {
    emm_memory *memory = nullptr;
    expect_ok(emm_memory_alloc(gpu.emm(), size, EMM_STREAM_UNORDERED, &memory));
    return memory;
}

} // namespace

TEST_CASE("old handles leave the addresses alone that a reset has given to others") {
    const Gpu gpu;
    std::vector<emm_memory *> old, young;
    for (int i = 0; i < 8; i++) {
        old.push_back(allocated(gpu));
    }
    REQUIRE(emm_context_reset(gpu.emm()) == EMM_OK);
    for (int i = 0; i < 8; i++) {
        young.push_back(allocated(gpu));
    }
    for (emm_memory *memory : old) {
        CHECK(info_of(memory).state == EMM_MEMORY_INERT);
        CHECK(emm_memory_release(memory) == EMM_OK);
    }
    CHECK(gpu.stats().live_count == 8);
    for (emm_memory *memory : young) {
        CHECK(emm_memory_release(memory) == EMM_OK);
    }
    CHECK(gpu.stats().live_count == 0);
}

TEST_CASE("handles of a context that died are released without harm to the next one's memory") {
    Gpu gpu;
    emm_memory *old = allocated(gpu), *freed = allocated(gpu);
    REQUIRE(emm_memory_retain(freed) == EMM_OK);
    CHECK(emm_memory_free(freed) == EMM_OK);
    gpu.kill();
    const Gpu next; // perhaps with the same handle and the same addresses
    emm_memory *young = allocated(next);
    const emm_deviceptr theirs = info_of(young).ptr;
    fill(theirs, 1 << 20, 5, nullptr);
    CHECK(info_of(old).state == EMM_MEMORY_INERT);
    CHECK(emm_memory_release(old) == EMM_OK);
    CHECK(emm_memory_release(freed) == EMM_OK);
    CHECK(emm_memory_release(freed) == EMM_OK);
    CHECK(emm_context_retire(gpu.emm()) == EMM_OK);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    CHECK(last_word(theirs, 1 << 20) == 5);
    CHECK(info_of(young).state == EMM_MEMORY_LIVE);
    CHECK(next.stats().live_count == 1);
    CHECK(emm_memory_release(young) == EMM_OK);
}

TEST_CASE("the last reference may go on a thread without a context, or with another's") {
    const Gpu gpu, other;
    emm_memory *first = allocated(gpu), *second = allocated(gpu);
    std::thread([&] { CHECK(emm_memory_release(first) == EMM_OK); }).join();
    std::thread([&] {
        REQUIRE(CU(cuCtxSetCurrent)(other.cuda()) == CUDA_SUCCESS);
        CHECK(emm_memory_release(second) == EMM_OK);
    }).join();
    CHECK(gpu.stats().live_count == 0);
    CHECK(gpu.stats().frees == 2);
    CHECK(other.stats().frees == 0);
}

TEST_CASE("a view addresses a part of its parent's memory") {
    const Gpu gpu;
    emm_memory *memory = allocated(gpu, 4096), *view = nullptr;
    REQUIRE(emm_memory_view(memory, 1024, 2048, &view) == EMM_OK);
    fill(info_of(memory).ptr, 4096, 1, nullptr);
    fill(info_of(view).ptr, info_of(view).size, 2, nullptr);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
    CHECK(last_word(info_of(memory).ptr, 1024) == 1);
    CHECK(last_word(info_of(memory).ptr, 2048) == 2);
    CHECK(last_word(info_of(memory).ptr, 4096) == 1);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(gpu.stats().live_count == 1);
    CHECK(emm_memory_release(view) == EMM_OK);
    CHECK(gpu.stats().live_count == 0);
}

TEST_CASE("handles of every kind go home at a reset and stay inert") {
    const Gpu gpu;
    emm_memory *made[3] = {};
    REQUIRE(emm_memory_alloc(gpu.emm(), 4096, EMM_STREAM_UNORDERED, &made[0]) == EMM_OK);
    REQUIRE(emm_memory_hostalloc(gpu.emm(), 4096, EMM_HOST_MAPPED, &made[1]) == EMM_OK);
    REQUIRE(emm_memory_managed(gpu.emm(), 4096, EMM_ATTACH_GLOBAL, &made[2]) == EMM_OK);
    for (int i = 0; i < 2; i++) {
        REQUIRE(emm_context_reset(gpu.emm()) == EMM_OK);
    }
    CHECK(gpu.stats().live_count == 0);
    CHECK(gpu.stats().host_live_bytes == 0);
    for (emm_memory *memory : made) {
        CHECK(info_of(memory).state == EMM_MEMORY_INERT);
        CHECK(emm_memory_release(memory) == EMM_OK);
    }
}
