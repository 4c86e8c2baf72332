// Behaviour: views, streams, resets, and callbacks that use handles.
#include "../handles.h"
#include "../recorder.h"
#include "catch.h"

#include <cstdlib>
#include <thread>

TEST_CASE("a view is a part of its parent and keeps it alive") {
    emm_context *context = recorded_context();
    emm_memory *memory = allocated(context, 1024), *view = nullptr, *part = nullptr;
    REQUIRE(emm_memory_view(memory, 256, 768, &view) == EMM_OK);
    REQUIRE(emm_memory_view(view, 16, 32, &part) == EMM_OK);
    CHECK(info_of(view).ptr == 0x1000 + 256);
    CHECK(info_of(view).size == 512);
    CHECK(info_of(view).parent == memory);
    CHECK(info_of(part).ptr == 0x1000 + 256 + 16);
    CHECK(info_of(part).parent == memory);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(emm_memory_release(view) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 0);
    CHECK(info_of(part).state == EMM_MEMORY_LIVE);
    CHECK(emm_memory_release(part) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 1);
}

TEST_CASE("a view must lie within what it is a view of") {
    emm_memory *memory = allocated(recorded_context(), 1024), *view = nullptr, *other = nullptr;
    CHECK(emm_memory_view(memory, 0, 1025, &view) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("1024, found 0 to 1025"));
    CHECK(emm_memory_view(memory, 5, 4, &view) == EMM_E_INVALID_VALUE);
    CHECK(view == nullptr);
    REQUIRE(emm_memory_view(memory, 0, 512, &view) == EMM_OK);
    CHECK(emm_memory_view(view, 0, 513, &other) == EMM_E_INVALID_VALUE);
    REQUIRE(emm_memory_view(memory, 1024, 1024, &other) == EMM_OK);
    CHECK(info_of(other).ptr == 0);
    CHECK(emm_memory_release(other) == EMM_OK);
    CHECK(emm_memory_release(view) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
}

TEST_CASE("a view shares its parent's end, and has none of its own") {
    emm_memory *memory = allocated(recorded_context()), *view = nullptr, *late = nullptr;
    REQUIRE(emm_memory_view(memory, 0, 16, &view) == EMM_OK);
    CHECK(emm_memory_free(view) == EMM_E_INVALID_VALUE);
    CHECK(info_of(view).state == EMM_MEMORY_LIVE);
    REQUIRE(emm_memory_free(memory) == EMM_OK);
    CHECK(info_of(view).state == EMM_MEMORY_FREED);
    CHECK(emm_memory_view(memory, 0, 16, &late) == EMM_E_ALREADY_FREED);
    CHECK(emm_memory_view(view, 0, 16, &late) == EMM_E_ALREADY_FREED);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(emm_memory_release(view) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 1);
}

TEST_CASE("the last free is ordered on the handle's stream, for a view on its parent's") {
    static emm_stream seen;
    Recorder::the().table.memfree = [](emm_manager *, emm_deviceptr, size_t, emm_stream stream) {
        seen = stream;
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    CHECK(emm_memory_release(allocated(context)) == EMM_OK);
    CHECK(seen == EMM_STREAM_LEGACY);
    emm_memory *memory = allocated(context), *view = nullptr;
    REQUIRE(emm_memory_view(memory, 0, 16, &view) == EMM_OK);
    CHECK(emm_memory_set_stream(view, EMM_STREAM_UNORDERED) == EMM_OK);
    CHECK(info_of(memory).stream == EMM_STREAM_UNORDERED);
    CHECK(emm_memory_release(view) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(seen == EMM_STREAM_UNORDERED);
}

TEST_CASE("a per-thread stream is that of the thread that named it") {
    static emm_stream seen;
    Recorder::the().table.memfree = [](emm_manager *, emm_deviceptr, size_t, emm_stream stream) {
        seen = stream;
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    emm_memory *memory = nullptr;
    REQUIRE(emm_memory_alloc(context, 64, EMM_STREAM_PER_THREAD, &memory) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(seen == EMM_STREAM_PER_THREAD);
    REQUIRE(emm_memory_alloc(context, 64, EMM_STREAM_PER_THREAD, &memory) == EMM_OK);
    std::thread([memory] { emm_memory_release(memory); }).join();
    CHECK(seen == EMM_STREAM_UNORDERED);
}

TEST_CASE("a reset makes handles inert and begins a new generation") {
    emm_context *context = recorded_context();
    emm_memory *memory = allocated(context), *view = nullptr;
    REQUIRE(emm_memory_view(memory, 0, 16, &view) == EMM_OK);
    REQUIRE(emm_context_reset(context) == EMM_OK);
    CHECK(info_of(memory).state == EMM_MEMORY_INERT);
    CHECK(info_of(view).state == EMM_MEMORY_INERT);
    emm_memory *after = allocated(context);
    CHECK(info_of(after).state == EMM_MEMORY_LIVE);
    CHECK(info_of(after).generation == info_of(memory).generation + 1);
    CHECK(info_of(after).ptr == info_of(memory).ptr);
    const uint64_t late = late_frees();
    CHECK(emm_memory_free(memory) == EMM_OK);
    CHECK(late_frees() == late + 1);
    CHECK(emm_memory_free(memory) == EMM_E_ALREADY_FREED);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(emm_memory_release(view) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 0);
    CHECK(emm_memory_release(after) == EMM_OK);
    CHECK(Recorder::the().count("memfree") == 1);
}

TEST_CASE("the owner of inert memory is finalized all the same, once") {
    emm_context *context = recorded_context();
    void *range = std::aligned_alloc(4096, 4096);
    emm_memory *pinned = nullptr, *wrapped = nullptr;
    REQUIRE(emm_memory_pin(context, range, 4096, 0, nullptr, &note_finalizer, &pinned) == EMM_OK);
    REQUIRE(emm_memory_wrap(context, 0x7000, nullptr, 1, nullptr, &note_finalizer, &wrapped) ==
            EMM_OK);
    REQUIRE(emm_context_reset(context) == EMM_OK);
    CHECK(Recorder::the().count("finalizer") == 0);
    CHECK(info_of(pinned).state == EMM_MEMORY_INERT);
    CHECK(info_of(wrapped).state == EMM_MEMORY_LIVE);
    CHECK(emm_memory_release(pinned) == EMM_OK);
    CHECK(Recorder::the().count("finalizer") == 1);
    REQUIRE(emm_context_retire(context) == EMM_OK);
    CHECK(info_of(wrapped).state == EMM_MEMORY_INERT);
    CHECK(emm_memory_release(wrapped) == EMM_OK);
    CHECK(Recorder::the().count("finalizer") == 2);
    std::free(range);
}

TEST_CASE("a finalizer may reset the context, retire it, and make handles") {
    static emm_context *context;
    static emm_status reset, made, retired;
    context = recorded_context();
    emm_memory *memory = nullptr;
    REQUIRE(emm_memory_wrap(
                context, 0x7000, nullptr, 1, nullptr,
                [](void *) {
                    emm_memory *inside = nullptr;
                    reset = emm_context_reset(context);
                    made = emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &inside);
                    retired = emm_context_retire(context);
                    emm_memory_release(inside);
                },
                &memory) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(reset == EMM_OK);
    CHECK(made == EMM_OK);
    CHECK(retired == EMM_OK);
}

TEST_CASE("a pressure callback may free handles, and is refused a reset") {
    static emm_context *context;
    static emm_memory *spare;
    static emm_status reset, retired, shut_down;
    context = recorded_context();
    spare = allocated(context);
    emm_set_pressure_callback(
        [](emm_context *, size_t, void *) -> size_t {
            reset = emm_context_reset(context);
            retired = emm_context_retire(context);
            shut_down = emm_shutdown();
            CHECK(emm_memory_release(spare) == EMM_OK);
            return 1024;
        },
        nullptr);
    Recorder::the().on_memalloc = [](size_t) {
        return Recorder::the().count("memfree") == 0 ? EMM_E_OUT_OF_MEMORY : EMM_OK;
    };
    emm_memory *memory = allocated(context);
    CHECK(reset == EMM_E_REENTERED);
    CHECK(retired == EMM_E_REENTERED);
    CHECK(shut_down == EMM_E_REENTERED);
    CHECK(info_of(memory).state == EMM_MEMORY_LIVE);
    CHECK(emm_memory_release(memory) == EMM_OK);
}

TEST_CASE("a plugin that asks for a handle while it is reset gets an error") {
    static emm_status inside = EMM_OK;
    emm_context *context = recorded_context();
    Recorder::the().on_create = [] {
        emm_memory *memory = nullptr;
        inside = emm_memory_alloc(Recorder::the().context, 64, EMM_STREAM_LEGACY, &memory);
        return EMM_OK;
    };
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(inside == EMM_E_REENTERED);
}

TEST_CASE("an allocation waits for a reset, and is of the new generation") {
    emm_context *context = recorded_context();
    static emm_context *of_reset;
    static std::thread other;
    static emm_memory *memory;
    of_reset = context;
    Recorder::the().on_create = [] {
        other = std::thread([] { // no assertions: Catch2 counts on one thread
            emm_memory_alloc(of_reset, 1024, EMM_STREAM_LEGACY, &memory);
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        Recorder::the().note("created");
        return EMM_OK;
    };
    Recorder::the().clear();
    REQUIRE(emm_context_reset(context) == EMM_OK);
    other.join();
    REQUIRE(memory != nullptr);
    CHECK(Recorder::the().calls() ==
          std::vector<std::string>{"destroy", "create", "created", "initialize", "memalloc"});
    CHECK(info_of(memory).generation == 2);
    CHECK(info_of(memory).state == EMM_MEMORY_LIVE);
    CHECK(emm_memory_release(memory) == EMM_OK);
}
