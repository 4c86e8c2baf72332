// A handle: its identity, its count and the memory that it gives back.
#include "../driver_calls.h"
#include "../handles.h"
#include "../host_memory.h"
#include "../recorder.h"
#include "catch.h"

#include <cstdlib>
#include <thread>

TEST_CASE("a handle tells what it is") {
    emm_context *context = recorded_context();
    emm_memory *memory = nullptr;
    REQUIRE(emm_memory_alloc(context, 1024, EMM_STREAM_UNORDERED, &memory) == EMM_OK);
    const emm_memory_info info = info_of(memory);
    CHECK(info.kind == EMM_KIND_DEVICE);
    CHECK(info.state == EMM_MEMORY_LIVE);
    CHECK(info.context == context);
    CHECK(info.ptr == 0x1000);
    CHECK(info.host == nullptr);
    CHECK(info.size == 1024);
    CHECK(info.generation == 1);
    CHECK(info.stream == EMM_STREAM_UNORDERED);
    CHECK(info.owner == nullptr);
    CHECK(info.parent == nullptr);
    CHECK(emm_memory_release(memory) == EMM_OK);
}

TEST_CASE("an older caller's shorter info is filled as far as it goes") {
    emm_memory *memory = allocated(recorded_context());
    emm_memory_info info = {};
    info.struct_size = offsetof(emm_memory_info, size);
    info.size = 7;
    REQUIRE(emm_memory_get_info(memory, &info) == EMM_OK);
    CHECK(info.ptr == 0x1000);
    CHECK(info.size == 7);
    CHECK(emm_memory_release(memory) == EMM_OK);
}

TEST_CASE("memory goes back with the last reference and not before") {
    emm_memory *memory = allocated(recorded_context());
    CHECK(emm_memory_retain(memory) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 0);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 1);
    CHECK(emm_memory_release(nullptr) == EMM_OK);
}

TEST_CASE("an explicit free frees at once, and the second one is refused") {
    emm_memory *memory = allocated(recorded_context());
    REQUIRE(emm_memory_retain(memory) == EMM_OK);
    CHECK(emm_memory_free(memory) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 1);
    CHECK(info_of(memory).state == EMM_MEMORY_FREED);
    CHECK(emm_memory_free(memory) == EMM_E_ALREADY_FREED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("freed already"));
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 1);
}

TEST_CASE("a handle of size 0 has address 0 and asks nothing of the plugin") {
    emm_context *context = recorded_context();
    Recorder::the().clear();
    emm_memory *made[3] = {};
    REQUIRE(emm_memory_alloc(context, 0, EMM_STREAM_LEGACY, &made[0]) == EMM_OK);
    REQUIRE(emm_memory_hostalloc(context, 0, EMM_HOST_MAPPED, &made[1]) == EMM_OK);
    REQUIRE(emm_memory_managed(context, 0, EMM_ATTACH_GLOBAL, &made[2]) == EMM_OK);
    for (emm_memory *memory : made) {
        CHECK(info_of(memory).ptr == 0);
        CHECK(info_of(memory).host == nullptr);
        CHECK(emm_memory_release(memory) == EMM_OK);
    }
    CHECK(Recorder::the().calls().empty());
}

TEST_CASE("an allocation that fails makes no handle and leaves the output alone") {
    emm_context *context = recorded_context();
    Recorder::the().on_memalloc = [](size_t) { return EMM_E_CAPTURING; };
    emm_memory *memory = nullptr;
    CHECK(emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &memory) == EMM_E_CAPTURING);
    CHECK(memory == nullptr);
    CHECK(emm_memory_alloc(nullptr, 64, EMM_STREAM_LEGACY, &memory) == EMM_E_INVALID_VALUE);
    CHECK(emm_memory_retain(nullptr) == EMM_E_INVALID_VALUE);
    CHECK(emm_memory_free(nullptr) == EMM_E_INVALID_VALUE);
}

TEST_CASE("a free that fails is told to its caller, and the handle is gone") {
    emm_memory *memory = allocated(recorded_context());
    Recorder::the().on_memfree = [] { return EMM_E_NOT_OWNED; };
    CHECK(emm_memory_release(memory) == EMM_E_NOT_OWNED);
    CHECK(Recorder::the().count("memfree") == 1);
}

TEST_CASE("memory whose stream the plugin refuses stays the handle's, and may be freed again") {
    emm_context *context = recorded_context();
    for (const emm_status refusal : {EMM_E_CAPTURING, EMM_E_INVALID_VALUE}) {
        emm_memory *memory = allocated(context);
        Recorder::the().on_memfree = [=] { return refusal; };
        CHECK(emm_memory_free(memory) == refusal);
        CHECK(info_of(memory).state == EMM_MEMORY_LIVE);
        Recorder::the().on_memfree = [] { return EMM_OK; };
        CHECK(emm_memory_free(memory) == EMM_OK);
        CHECK(emm_memory_release(memory) == EMM_OK);
    }
}

namespace {

bool is_write_combined(const emm_memory_info &info) {
    unsigned flags = 0;
    REQUIRE(CU(cuMemHostGetFlags)(&flags, info.host) == CUDA_SUCCESS);
    return (flags & CU_MEMHOSTALLOC_WRITECOMBINED) != 0;
}

} // namespace

TEST_CASE("the driver is told that pinned memory is write-combined, and that other is not") {
    emm_context *context = recorded_context();
    REQUIRE(CU(cuCtxSetCurrent)(info_of(context).cuda_context) == CUDA_SUCCESS);
    emm_memory *combined = nullptr, *mapped = nullptr;
    REQUIRE(emm_memory_hostalloc(context, 4096, EMM_HOST_WRITE_COMBINED, &combined) == EMM_OK);
    REQUIRE(emm_memory_hostalloc(context, 4096, EMM_HOST_MAPPED, &mapped) == EMM_OK);
    CHECK(is_write_combined(info_of(combined)));
    CHECK_FALSE(is_write_combined(info_of(mapped)));
    CHECK(emm_memory_release(combined) == EMM_OK);
    CHECK(emm_memory_release(mapped) == EMM_OK);
}

TEST_CASE("pinned and mapped memory tell their kinds and addresses, and go back") {
    emm_context *context = recorded_context();
    emm_memory *pinned = nullptr, *mapped = nullptr;
    REQUIRE(emm_memory_hostalloc(context, 4096, EMM_HOST_WRITE_COMBINED, &pinned) == EMM_OK);
    REQUIRE(emm_memory_hostalloc(context, 4096, EMM_HOST_MAPPED, &mapped) == EMM_OK);
    CHECK(info_of(pinned).kind == EMM_KIND_PINNED);
    CHECK(info_of(pinned).flags == EMM_HOST_WRITE_COMBINED);
    CHECK(info_of(pinned).host != nullptr);
    CHECK(info_of(pinned).ptr == 0);
    CHECK(info_of(mapped).kind == EMM_KIND_MAPPED);
    CHECK(info_of(mapped).host != nullptr);
    CHECK(info_of(mapped).ptr != 0);
    void *const host = info_of(mapped).host;
    CHECK(emm_memory_release(pinned) == EMM_OK);
    CHECK(emm_memory_release(mapped) == EMM_OK);
    CHECK(emm_memhostfree(context, host, 0, 0, EMM_STREAM_UNORDERED) == EMM_E_NOT_OWNED);
}

TEST_CASE("managed memory has one address for device and host, and goes back") {
    emm_context *context = recorded_context();
    emm_memory *memory = nullptr;
    REQUIRE(emm_memory_managed(context, 4096, EMM_ATTACH_HOST, &memory) == EMM_OK);
    const emm_memory_info info = info_of(memory);
    CHECK(info.kind == EMM_KIND_MANAGED);
    CHECK(info.flags == EMM_ATTACH_HOST);
    CHECK(info.ptr == reinterpret_cast<uintptr_t>(info.host));
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(emm_memfreemanaged(context, info.ptr, 0, EMM_STREAM_UNORDERED) == EMM_E_NOT_OWNED);
}

TEST_CASE("a pinned range is unpinned before its owner is finalized") {
    static emm_context *context;
    static void *range;
    context = recorded_context();
    range = std::aligned_alloc(4096, 8192);
    emm_memory *memory = nullptr;
    REQUIRE(emm_memory_pin(
                context, range, 8192, EMM_HOST_MAPPED, range,
                [](void *owner) {
                    note_finalizer(owner);
                    CHECK(emm_memunpin(context, owner, 8192) == EMM_E_NOT_OWNED);
                    std::free(owner);
                },
                &memory) == EMM_OK);
    CHECK(info_of(memory).kind == EMM_KIND_MAPPED);
    CHECK(info_of(memory).ptr != 0);
    CHECK(info_of(memory).host == range);
    CHECK(info_of(memory).owner == range);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(Recorder::the().count("finalizer") == 1);
}

TEST_CASE("a range that cannot be pinned stays its owner's") {
    emm_context *context = recorded_context();
    void *range = std::aligned_alloc(4096, 4096);
    emm_memory *first = nullptr, *second = nullptr;
    REQUIRE(emm_memory_pin(context, range, 4096, 0, nullptr, nullptr, &first) == EMM_OK);
    CHECK(info_of(first).kind == EMM_KIND_PINNED);
    CHECK(emm_memory_pin(context, range, 4096, 0, range, &note_finalizer, &second) == EMM_E_BUSY);
    CHECK(second == nullptr);
    CHECK(Recorder::the().count("finalizer") == 0);
    CHECK(emm_memory_release(first) == EMM_OK);
    std::free(range);
}

TEST_CASE("memory of another owner is only finalized, once, on a thread without a context") {
    emm_context *context = recorded_context();
    static CUcontext seen = nullptr;
    int owner = 0;
    emm_memory *memory = nullptr;
    REQUIRE(emm_memory_wrap(
                context, 0x7000, nullptr, 64, &owner,
                [](void *passed) {
                    ++*static_cast<int *>(passed);
                    CU(cuCtxGetCurrent)(&seen);
                },
                &memory) == EMM_OK);
    CHECK(info_of(memory).kind == EMM_KIND_EXTERNAL);
    CHECK(info_of(memory).ptr == 0x7000);
    REQUIRE(emm_memory_retain(memory) == EMM_OK);
    std::thread([memory] { emm_memory_free(memory); }).join();
    CHECK(owner == 1);
    CHECK(seen == nullptr);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(owner == 1);
    CHECK(Recorder::the().count("memfree") == 0);
}

TEST_CASE("an exception out of a finalizer goes no further") {
    emm_memory *memory = nullptr;
    REQUIRE(emm_memory_wrap(
                recorded_context(), 0x7000, nullptr, 64, nullptr, [](void *) { throw 1; },
                &memory) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
}

TEST_CASE("failures of a finalizer leave the error of the free") {
    emm_context *context = recorded_context();
    alignas(4096) static char range[4096];
    emm_memory *memory = nullptr;
    REQUIRE(emm_memory_pin(
                context, range, sizeof range, 0, nullptr,
                [](void *) { CHECK(emm_memory_free(nullptr) == EMM_E_INVALID_VALUE); },
                &memory) == EMM_OK);
    REQUIRE(emm_memunpin(context, range, sizeof range) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_E_NOT_OWNED);
    CHECK(emm_last_error()->code == EMM_E_NOT_OWNED);
}

#if EMM_TEST_FAILS_ALLOCATIONS
TEST_CASE("a handle for which there is no host memory is no failure of the driver") {
    emm_context *context = recorded_context();
    emm_memory *memory = nullptr;
    has_memory = false;
    const emm_status status = emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &memory);
    has_memory = true;
    CHECK(status == EMM_E_OUT_OF_HOST_MEMORY);
    CHECK(emm_last_error()->driver_result == 0);
    CHECK(memory == nullptr);
}
#endif
