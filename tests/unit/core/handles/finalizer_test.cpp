// Behaviour: the owner of a pinned range is finalized after it is unpinned, however that happens.
#include "../driver_calls.h"
#include "../handles.h"
#include "../recorder.h"
#include "catch.h"

#include <array>
#include <thread>

namespace {

using Calls = std::vector<std::string>;

alignas(4096) std::array<char, 4096> range;
emm_memory *pinned = nullptr;
emm_status reset_answer = EMM_OK;

emm_context *context_with_pinned_range(emm_finalizer finalizer = &note_finalizer) {
    emm_context *const context = recorded_context();
    REQUIRE(emm_memory_pin(context, range.data(), range.size(), 0, range.data(), finalizer,
                           &pinned) == EMM_OK);
    return context;
}

// Has no assertions: Catch2 counts on one thread.
void release_in_another_thread() {
    std::thread([] { emm_memory_release(pinned); }).join();
}

void fail_calls(const char *which) {
    const auto fail =
        reinterpret_cast<CUresult (*)(const char *)>(emm_driver_entry("simcuda_fail", 12000));
    REQUIRE(fail(which) == CUDA_SUCCESS);
}

// The driver refuses once to unpin the range at the end of its context or of its manager.
void end_with_refusal(emm_status (*end)(emm_context *)) {
    static bool was_pinned = false;
    emm_context *const context = context_with_pinned_range([](void *owner) {
        unsigned flags = 0;
        was_pinned = CU(cuMemHostGetFlags)(&flags, owner) == CUDA_SUCCESS;
        note_finalizer(owner);
    });
    fail_calls("cuMemHostUnregister@1:999");
    Recorder::the().clear();
    CHECK(end(context) == EMM_OK);
    CHECK(emm_memory_release(pinned) == EMM_OK);
    CHECK(Recorder::the().count("finalizer") == 1);
    CHECK_FALSE(was_pinned);
}

// The plugin pins by itself.
void pin_by_plugin(emm_status (*unpin)(emm_manager *, void *, size_t)) {
    Recorder::the().table.mempin = [](emm_manager *, void *, size_t, uint32_t,
                                      emm_deviceptr *) -> emm_status { return EMM_OK; };
    Recorder::the().table.memunpin = unpin;
}

} // namespace

TEST_CASE("a range that is released during a reset is unpinned before its owner is finalized") {
    static CUresult pinned_anew = CUDA_ERROR_UNKNOWN;
    Recorder::the().table.reset = [](emm_manager *) -> emm_status {
        release_in_another_thread();
        Recorder::the().note("reset");
        return EMM_OK;
    };
    static auto at = sized<emm_context_info>();
    emm_context *const context = context_with_pinned_range([](void *owner) {
        note_finalizer(owner);
        CU(cuCtxSetCurrent)(at.cuda_context);
        pinned_anew = CU(cuMemHostRegister)(owner, range.size(), CU_MEMHOSTREGISTER_PORTABLE);
    });
    REQUIRE(emm_context_get_info(context, &at) == EMM_OK);
    Recorder::the().clear();
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"reset", "finalizer"});
    CHECK(pinned_anew == CUDA_SUCCESS);
}

TEST_CASE("a range that is freed during a reset keeps its handle and is finalized once") {
    Recorder::the().table.reset = [](emm_manager *) -> emm_status {
        std::thread([] { emm_memory_free(pinned); }).join();
        Recorder::the().note("reset");
        return EMM_OK;
    };
    emm_context *const context = context_with_pinned_range();
    Recorder::the().clear();
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"reset", "finalizer"});
    CHECK(info_of(pinned).state == EMM_MEMORY_FREED);
    CHECK(emm_memory_release(pinned) == EMM_OK);
    CHECK(Recorder::the().count("finalizer") == 1);
}

namespace {

emm_context *context_that_releases_in_destroy() {
    Recorder::the().table.destroy = [](emm_manager *) -> emm_status {
        release_in_another_thread();
        Recorder::the().note("destroy");
        return EMM_OK;
    };
    emm_context *const context = context_with_pinned_range();
    Recorder::the().clear();
    return context;
}

} // namespace

TEST_CASE("a range that is released during a retirement is unpinned before it is finalized") {
    CHECK(emm_context_retire(context_that_releases_in_destroy()) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"destroy", "finalizer"});
}

TEST_CASE("the same holds for a range of a pool that is retired with its CUDA context") {
    Recorder::the().table.destroy = [](emm_manager *) -> emm_status {
        if (Recorder::the().count("destroy") == 0) {
            release_in_another_thread();
        }
        Recorder::the().note("destroy");
        return EMM_OK;
    };
    emm_context *const context = recorded_context();
    emm_context *pool = context_named(context, "kv-cache");
    REQUIRE(emm_memory_pin(pool, range.data(), range.size(), 0, range.data(), &note_finalizer,
                           &pinned) == EMM_OK);
    Recorder::the().clear();
    CHECK(emm_context_retire(context) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"destroy", "destroy", "finalizer"});
}

TEST_CASE("a range that is released while a new manager is made is finalized after the old one") {
    CHECK(emm_context_reset(context_that_releases_in_destroy()) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"destroy", "create", "initialize", "finalizer"});
}

TEST_CASE("a range that is released while a retirement waits for a call is unpinned by it first") {
    static std::thread retirement;
    emm_context *const context = context_with_pinned_range();
    pin_by_plugin([](emm_manager *, void *, size_t) -> emm_status {
        Recorder::the().note("memunpin");
        return EMM_OK;
    });
    static emm_memory *other;
    other = allocated(context);
    Recorder::the().clear();
    Recorder::the().on_memalloc = [](size_t) {
        retirement = std::thread([] { emm_context_retire(Recorder::the().context); });
        auto info = sized<emm_memory_info>();
        do {
            std::this_thread::yield();
            emm_memory_get_info(other, &info);
        } while (info.state == EMM_MEMORY_LIVE); // until the retirement has begun
        release_in_another_thread();
        return EMM_OK;
    };
    emm_memory *const last = allocated(context);
    retirement.join();
    CHECK(Recorder::the().calls() == Calls{"memalloc", "destroy", "finalizer"});
    CHECK(emm_memory_release(other) == EMM_OK);
    CHECK(emm_memory_release(last) == EMM_OK);
}

TEST_CASE("a range that could not be unpinned is finalized when a reset has dropped it") {
    pin_by_plugin([](emm_manager *, void *, size_t) -> emm_status { return EMM_E_DRIVER; });
    Recorder::the().table.reset = [](emm_manager *) -> emm_status {
        Recorder::the().note("reset");
        return EMM_OK;
    };
    emm_context *const context = context_with_pinned_range();
    Recorder::the().clear();
    CHECK(emm_memory_release(pinned) == EMM_E_DRIVER);
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"reset", "finalizer"});
}

TEST_CASE("a range that could not be unpinned twice is finalized once it is") {
    static int failures = 3;
    pin_by_plugin([](emm_manager *, void *, size_t) -> emm_status {
        Recorder::the().note(failures > 0 ? "failure" : "memunpin");
        return failures-- > 0 ? EMM_E_DRIVER : EMM_OK;
    });
    Recorder::the().table.trim = nullptr;
    emm_context *const context = context_with_pinned_range();
    Recorder::the().clear();
    CHECK(emm_memory_release(pinned) == EMM_E_DRIVER);
    for (int flush = 0; flush < 5; ++flush) {
        CHECK(emm_trim(context, 0, nullptr) == EMM_OK);
    }
    CHECK(Recorder::the().calls() ==
          Calls{"failure", "failure", "failure", "memunpin", "finalizer"});
}

TEST_CASE("after a reset that failed the next one finalizes what it drops") {
    pin_by_plugin([](emm_manager *, void *, size_t) -> emm_status { return EMM_OK; });
    Recorder::the().table.reset = [](emm_manager *) -> emm_status {
        Recorder::the().note("reset");
        return reset_answer;
    };
    emm_context *const context = context_with_pinned_range();
    Recorder::the().clear();
    reset_answer = EMM_E_PLUGIN_FAILED;
    CHECK(emm_context_reset(context) == EMM_E_PLUGIN_FAILED);
    CHECK(emm_memory_release(pinned) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"reset"});
    reset_answer = EMM_OK;
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().calls() == Calls{"reset", "reset", "finalizer"});
}

TEST_CASE("a reset unpins a range that the driver refuses to unpin once", "[sim]") {
    end_with_refusal(&emm_context_reset);
}

TEST_CASE("a retirement unpins a range that the driver refuses to unpin once", "[sim]") {
    end_with_refusal(&emm_context_retire);
}

TEST_CASE("the owner of a range that a reset cannot unpin is finalized once it is unpinned",
          "[sim]") {
    emm_context *const context = context_with_pinned_range();
    fail_calls("cuMemHostUnregister@1+");
    Recorder::the().clear();
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(emm_memory_release(pinned) == EMM_OK);
    CHECK(Recorder::the().count("finalizer") == 0);
    fail_calls("");
    CHECK(emm_trim(context, 0, nullptr) == EMM_OK);
    CHECK(Recorder::the().count("finalizer") == 1);
}
