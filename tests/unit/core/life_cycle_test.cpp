// Behaviour: contexts that come, are reset, go and come back, with raw memory and handles
// outstanding.
#include "catch.h"
#include "driver_calls.h"
#include "recorder.h"

#include <cstdlib>

namespace {

emm_memory *allocated(emm_context *context) {
    emm_memory *memory = nullptr;
    REQUIRE(emm_memory_alloc(context, 64, EMM_STREAM_UNORDERED, &memory) == EMM_OK);
    return memory;
}

uint32_t state_of(emm_memory *memory) {
    return info_of(memory).state;
}

void defer(emm_context *context) {
    REQUIRE(Recorder::the().host->defer(context, &note_run, nullptr, 1) == EMM_OK);
}

void make_current(emm_context *context) {
    REQUIRE(CU(cuCtxSetCurrent)(info_of(context).cuda_context) == CUDA_SUCCESS);
}

} // namespace

TEST_CASE("asking for a context again makes nothing anew and disturbs nothing") {
    emm_context *context = recorded_context();
    emm_memory *memory = allocated(context);
    defer(context);
    make_current(context);
    for (int i = 0; i < 5; ++i) {
        emm_context *again = nullptr;
        CHECK(emm_context_current(&again) == EMM_OK);
        CHECK(again == context);
        CHECK(emm_context_for_device(0, &again) == EMM_OK);
        CHECK(again == context);
    }
    CHECK(Recorder::the().count("create") == 1);
    CHECK(Recorder::the().count("initialize") == 1);
    CHECK(state_of(memory) == EMM_MEMORY_LIVE);
    CHECK(counters().pending_count == 1);
    CHECK(emm_memory_release(memory) == EMM_OK);
}

TEST_CASE("a plugin's reset slot is called on a thread without a context, as often as asked") {
    static CUcontext current = nullptr;
    Recorder::the().table.reset = [](emm_manager *) -> emm_status {
        Recorder::the().note("reset");
        CU(cuCtxGetCurrent)(&current);
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    Recorder::the().clear();
    defer(context);
    for (int i = 0; i < 3; ++i) {
        CHECK(emm_context_reset(context) == EMM_OK);
    }
    CHECK(current == nullptr);
    CHECK(Recorder::the().calls() == std::vector<std::string>{"run", "reset", "reset", "reset"});
    emm_memory *memory = allocated(context);
    CHECK(state_of(memory) == EMM_MEMORY_LIVE);
    CHECK(emm_memory_release(memory) == EMM_OK);
}

TEST_CASE("a reset that fails makes handles inert all the same") {
    Recorder::the().table.reset = [](emm_manager *) -> emm_status { return EMM_E_DRIVER; };
    emm_context *context = recorded_context();
    emm_memory *memory = allocated(context);
    CHECK(emm_context_reset(context) == EMM_E_DRIVER);
    CHECK(state_of(memory) == EMM_MEMORY_INERT);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 0);
}

TEST_CASE("reset comes before initialize: a context without a manager gets one") {
    emm_context *context = recorded_context();
    Recorder::the().on_create = [] { return EMM_E_DRIVER; };
    CHECK(emm_context_reset(context) == EMM_E_DRIVER);
    CHECK(emm_context_reset(context) == EMM_E_DRIVER);
    Recorder::the().on_create = [] { return EMM_OK; };
    Recorder::the().clear();
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().calls() == std::vector<std::string>{"create", "initialize"});
    CHECK(emm_memory_release(allocated(context)) == EMM_OK);
}

TEST_CASE("primary and user contexts have managers, queues and resets of their own") {
    emm_context *primary = recorded_context();
    emm_context *user = context_from(new_context());
    CHECK(user != primary);
    CHECK(Recorder::the().count("create") == 2);
    emm_memory *theirs = allocated(primary), *ours = allocated(user);
    defer(primary);
    defer(user);
    REQUIRE(emm_context_reset(user) == EMM_OK);
    CHECK(Recorder::the().count("run") == 1);
    CHECK(state_of(ours) == EMM_MEMORY_INERT);
    CHECK(state_of(theirs) == EMM_MEMORY_LIVE);
    CHECK(emm_memory_release(ours) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 0);
    CHECK(emm_memory_release(theirs) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 1);
}

TEST_CASE("two devices are served apart") {
    setenv("EMM_SIM", "devices=2", 1);
    emm_context *first = recorded_context(), *second = nullptr;
    if (driver_info().device_count < 2) {
        WARN("skipped: the driver has one device");
        return;
    }
    REQUIRE(emm_context_for_device(1, &second) == EMM_OK);
    emm_memory *on_first = allocated(first), *on_second = allocated(second);
    CHECK(info_of(on_second).context == second);
    make_current(second); // whatever is current, memory goes home
    REQUIRE(emm_context_retire(second) == EMM_OK);
    CHECK(state_of(on_first) == EMM_MEMORY_LIVE);
    CHECK(state_of(on_second) == EMM_MEMORY_INERT);
    CHECK(emm_memory_release(on_first) == EMM_OK);
    CHECK(emm_memory_release(on_second) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 1);
}

TEST_CASE("after retirement handles are inert and none can be made") {
    recorded_context();
    emm_context *context = context_from(new_context());
    emm_memory *memory = allocated(context), *view = nullptr, *none = nullptr;
    REQUIRE(emm_memory_view(memory, 0, 32, &view) == EMM_OK);
    REQUIRE(emm_context_retire(context) == EMM_OK);
    CHECK(state_of(view) == EMM_MEMORY_INERT);
    CHECK(emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &none) == EMM_E_RETIRED);
    CHECK(emm_memory_wrap(context, 1, nullptr, 1, nullptr, nullptr, &none) == EMM_E_RETIRED);
    CHECK(none == nullptr);
    const uint64_t late = counters().late_frees;
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(emm_memory_release(view) == EMM_OK);
    CHECK(counters().late_frees == late + 1);
    CHECK(Recorder::the().count("memfree") == 0);
}

TEST_CASE("after shutdown handles are released as late frees") {
    emm_context *context = recorded_context();
    emm_memory *memory = allocated(context), *none = nullptr;
    REQUIRE(emm_shutdown() == EMM_OK);
    CHECK(state_of(memory) == EMM_MEMORY_INERT);
    CHECK(emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &none) == EMM_E_SHUT_DOWN);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(counters().late_frees == 1);
}

TEST_CASE("a context dies and its handle comes back: old memory stays out of the new one") {
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    REQUIRE(emm_driver_entry("cuInit", 12000));
    const CUcontext first = new_context();
    emm_context *before = context_from(first);
    emm_memory *old = allocated(before);
    defer(before);
    REQUIRE(CU(cuCtxDestroy)(first) == CUDA_SUCCESS);
    const CUcontext second = new_context();
    emm_context *after = context_from(second);
    REQUIRE(after != before);
    emm_memory *young = allocated(after);
    CHECK(state_of(old) == EMM_MEMORY_INERT);
    CHECK(state_of(young) == EMM_MEMORY_LIVE);
    CHECK(emm_memory_release(old) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 0);
    REQUIRE(emm_context_retire(before) == EMM_OK);
    CHECK(Recorder::the().count("run") == 0);
    CHECK(Recorder::the().count("drop") == 1);
    CHECK(emm_memory_release(young) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 1);
}

TEST_CASE("a context that died serves no more once another is seen") {
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    REQUIRE(emm_driver_entry("cuInit", 12000));
    const CUcontext first = new_context();
    emm_context *before = context_from(first);
    emm_deviceptr live = 0, none = 0;
    void *host = nullptr;
    REQUIRE(emm_memalloc(before, 64, EMM_STREAM_LEGACY, &live) == EMM_OK);
    defer(before);
    REQUIRE(CU(cuCtxDestroy)(first) == CUDA_SUCCESS);
    Recorder::the().clear();
    emm_context *after = context_from(new_context()); // perhaps with the same handle
    REQUIRE(after != before);
    CHECK(Recorder::the().calls() ==
          std::vector<std::string>{"drop", "destroy", "create", "initialize"});
    CHECK(emm_memalloc(before, 64, EMM_STREAM_LEGACY, &none) == EMM_E_RETIRED);
    CHECK(emm_memhostalloc(before, 64, 0, &host, nullptr) == EMM_E_RETIRED);
    CHECK(emm_context_reset(before) == EMM_E_RETIRED);
    CHECK(none == 0);
    const uint64_t late = counters().late_frees;
    CHECK(emm_memfree(before, live, 64, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(counters().late_frees == late + 1);
    CHECK(emm_context_retire(before) == EMM_OK);
    CHECK(Recorder::the().count("memalloc") == 0);
    CHECK(Recorder::the().count("memfree") == 0);
    CHECK(Recorder::the().count("destroy") == 1);
    CHECK(emm_memalloc(after, 64, EMM_STREAM_LEGACY, &live) == EMM_OK);
}

TEST_CASE("a primary context that was reset is retired when the next one is asked for") {
    emm_context *before = recorded_context(), *after = nullptr;
    emm_deviceptr none = 0;
    REQUIRE(CU(cuDevicePrimaryCtxReset)(0) == CUDA_SUCCESS);
    REQUIRE(emm_context_for_device(0, &after) == EMM_OK);
    REQUIRE(after != before);
    CHECK(emm_memalloc(before, 64, EMM_STREAM_LEGACY, &none) == EMM_E_RETIRED);
    CHECK(Recorder::the().count("destroy") == 1);
    unsigned flags = 0;
    int active = 0;
    REQUIRE(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 1); // emm's reference to the old context is not taken from the new one
    CHECK(emm_context_retire(after) == EMM_OK);
    REQUIRE(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active) == CUDA_SUCCESS);
    CHECK(active == 0);
}

TEST_CASE("a context that died beside one that is known is found when its thread goes on there") {
    emm_context *primary = recorded_context();
    const CUcontext dying = new_context();
    emm_context *before = context_from(dying), *again = nullptr;
    emm_deviceptr none = 0;
    REQUIRE(CU(cuCtxDestroy)(dying) == CUDA_SUCCESS);
    make_current(primary);
    REQUIRE(emm_context_current(&again) == EMM_OK);
    CHECK(again == primary);
    CHECK(emm_memalloc(before, 64, EMM_STREAM_LEGACY, &none) == EMM_E_RETIRED);
    CHECK(Recorder::the().count("destroy") == 1);
    CHECK(emm_memalloc(primary, 64, EMM_STREAM_LEGACY, &none) == EMM_OK);
}

TEST_CASE("neither a reset nor a trim reaches the manager of a context that has died") {
    Recorder::the().table.trim = [](emm_manager *, size_t, size_t *) -> emm_status {
        Recorder::the().note("trim");
        return EMM_OK;
    };
    recorded_context();
    const CUcontext first = new_context(), second = new_context();
    emm_context *to_reset = context_from(first), *to_trim = context_from(second);
    REQUIRE(CU(cuCtxDestroy)(first) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxDestroy)(second) == CUDA_SUCCESS);
    Recorder::the().clear();
    CHECK(emm_context_reset(to_reset) == EMM_E_RETIRED);
    CHECK(emm_trim(to_trim, 0, nullptr) == EMM_E_RETIRED);
    CHECK(Recorder::the().calls().empty());
}

TEST_CASE("a context that died within a call is only marked there, and given up later") {
    static CUcontext dying = nullptr;
    static emm_context *dead = nullptr, *seen = nullptr;
    emm_context *context = recorded_context();
    dying = new_context();
    dead = context_from(dying);
    Recorder::the().on_memalloc = [](size_t) { return EMM_E_OUT_OF_MEMORY; };
    REQUIRE(emm_set_pressure_callback(
                [](emm_context *, size_t, void *) -> size_t {
                    emm_deviceptr none = 0;
                    REQUIRE(CU(cuCtxDestroy)(dying) == CUDA_SUCCESS);
                    seen = context_from(new_context());
                    CHECK(emm_memalloc(dead, 64, EMM_STREAM_LEGACY, &none) == EMM_E_RETIRED);
                    return 0;
                },
                nullptr) == EMM_OK);
    emm_memory *none = nullptr;
    CHECK(emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &none) == EMM_E_OUT_OF_MEMORY);
    CHECK(seen != dead);
    CHECK(Recorder::the().count("destroy") == 0);
    context_from(new_context());
    CHECK(Recorder::the().count("destroy") == 1);
}

TEST_CASE("once the device is lost handles are released, their owners finalized, none made") {
    emm_context *context = recorded_context();
    void *range = std::aligned_alloc(4096, 4096);
    emm_memory *memory = allocated(context), *pinned = nullptr, *none = nullptr;
    REQUIRE(emm_memory_pin(
                context, range, 4096, 0, range,
                [](void *owner) {
                    Recorder::the().note("finalizer");
                    std::free(owner);
                },
                &pinned) == EMM_OK);
    Recorder::the().on_memalloc = [](size_t) { return EMM_E_DEVICE_LOST; };
    CHECK(emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &none) == EMM_E_DEVICE_LOST);
    CHECK(emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &none) == EMM_E_DEVICE_LOST);
    CHECK(none == nullptr);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(emm_memory_release(pinned) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 0);
    CHECK(Recorder::the().count("finalizer") == 1);
    CHECK(counters().late_frees == 2);
}
