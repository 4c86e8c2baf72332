// Behaviour: calls that are refused before the plugin is asked, with nothing changed.
#include "catch.h"
#include "driver_calls.h"
#include "recorder.h"

#include <cstdlib>
#include <emm/array.h>

namespace {

// The context of device 0, served by a recorder that implements every kind of memory.
emm_context *context_of_a_full_plugin() {
    emm_plugin &table = Recorder::the().table;
    table.memhostalloc = [](emm_manager *, size_t, uint32_t, void **ret_host,
                            emm_deviceptr *) -> emm_status {
        static char memory[64];
        *ret_host = memory;
        Recorder::the().note("memhostalloc");
        return EMM_OK;
    };
    table.memhostfree = [](emm_manager *, void *, size_t, uint32_t, emm_stream) -> emm_status {
        Recorder::the().note("memhostfree");
        return EMM_OK;
    };
    table.mempin = [](emm_manager *, void *, size_t, uint32_t, emm_deviceptr *) -> emm_status {
        Recorder::the().note("mempin");
        return EMM_OK;
    };
    table.memunpin = [](emm_manager *, void *, size_t size) -> emm_status {
        Recorder::the().note("memunpin " + std::to_string(size));
        return EMM_OK;
    };
    table.memallocmanaged = [](emm_manager *, size_t, uint32_t,
                               emm_deviceptr *ret_ptr) -> emm_status {
        *ret_ptr = 0x2000;
        Recorder::the().note("memallocmanaged");
        return EMM_OK;
    };
    table.memfreemanaged = [](emm_manager *, emm_deviceptr, size_t, emm_stream) -> emm_status {
        return EMM_OK;
    };
    table.stream_notice = [](emm_manager *, emm_stream, uint32_t) -> emm_status {
        Recorder::the().note("stream_notice");
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    Recorder::the().clear();
    return context;
}

} // namespace

TEST_CASE("flags that a call does not have are refused, whatever the size") {
    emm_context *context = context_of_a_full_plugin();
    char own[64];
    void *host = own;
    emm_deviceptr ptr = 7;
    emm_memory *memory = nullptr;
    for (const size_t size : {size_t(0), sizeof own}) {
        for (const uint32_t flags : {8u, 16u, 0x80000000u, 15u}) {
            CHECK(emm_memhostalloc(context, size, flags, &host, &ptr) == EMM_E_INVALID_VALUE);
            CHECK(emm_memory_hostalloc(context, size, flags, &memory) == EMM_E_INVALID_VALUE);
            CHECK(emm_memhostfree(context, own, size, flags, EMM_STREAM_UNORDERED) ==
                  EMM_E_INVALID_VALUE);
            CHECK_THAT(emm_last_error()->text,
                       ContainsSubstring("emm_memhostfree: flags: expected EMM_HOST_PORTABLE") &&
                           ContainsSubstring("found " + std::to_string(flags)));
        }
        for (const uint32_t flags : {EMM_HOST_WRITE_COMBINED, 16u, 15u}) {
            CHECK(emm_mempin(context, own, size, flags, &ptr) == EMM_E_INVALID_VALUE);
            CHECK(emm_memory_pin(context, own, size, flags, nullptr, nullptr, &memory) ==
                  EMM_E_INVALID_VALUE);
        }
        for (const uint32_t flags : {0u, EMM_ATTACH_GLOBAL | EMM_ATTACH_HOST, 4u}) {
            CHECK(emm_memallocmanaged(context, size, flags, &ptr) == EMM_E_INVALID_VALUE);
            CHECK(emm_memory_managed(context, size, flags, &memory) == EMM_E_INVALID_VALUE);
        }
    }
    CHECK(Recorder::the().calls().empty());
    CHECK(host == own);
    CHECK(ptr == 7);
    CHECK(memory == nullptr);
    CHECK(emm_memhostalloc(context, 64, 7, &host, &ptr) == EMM_OK);
    CHECK(emm_mempin(context, own, 64, 11, &ptr) == EMM_OK);
    CHECK(emm_memallocmanaged(context, 64, EMM_ATTACH_HOST, &ptr) == EMM_OK);
    CHECK(Recorder::the().calls().size() == 3);
}

TEST_CASE("unpinning without a size reaches the plugin") {
    emm_context *context = context_of_a_full_plugin();
    char own[64];
    CHECK(emm_memunpin(context, own, 0) == EMM_OK);
    CHECK(Recorder::the().calls() == std::vector<std::string>{"memunpin 0"});
}

TEST_CASE("what is no stream is neither registered nor captures") {
    emm_context *context = context_of_a_full_plugin();
    for (const auto call :
         {emm_stream_register, emm_stream_retire, emm_capture_begin, emm_capture_end}) {
        CHECK(call(context, EMM_STREAM_UNORDERED) == EMM_E_INVALID_VALUE);
        CHECK_THAT(emm_last_error()->text, ContainsSubstring("found EMM_STREAM_UNORDERED"));
    }
    CHECK(Recorder::the().calls().empty());
    CHECK(emm_stream_register(context, EMM_STREAM_PER_THREAD) == EMM_OK);
}

TEST_CASE("a handle on memory without any address is refused, unless there is none") {
    emm_context *context = recorded_context();
    emm_memory *memory = nullptr;
    char own[8];
    static int finalized = 0;
    const emm_finalizer finalizer = [](void *) { ++finalized; };
    CHECK(emm_memory_wrap(context, 0, nullptr, 8, own, finalizer, &memory) == EMM_E_INVALID_VALUE);
    CHECK(memory == nullptr);
    CHECK(finalized == 0);
    CHECK(emm_memory_wrap(context, 0, nullptr, 0, own, finalizer, &memory) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(emm_memory_wrap(context, 0, own, 8, own, finalizer, &memory) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
    CHECK(finalized == 2);
}

TEST_CASE("a struct to be filled whose size is not set is refused by every call that fills one") {
    emm_context *context = recorded_context();
    emm_memory *memory = nullptr;
    REQUIRE(emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &memory) == EMM_OK);
    emm_plugin_info plugin = {};
    emm_driver_info driver = {};
    emm_driver_usage usage = {};
    emm_context_info at = {};
    emm_stats stats = {};
    emm_block_info block = {};
    emm_memory_info info = {};
    emm_counters counters = {};
    emm_array_layout layout = {};
    const int64_t shape[] = {4};
    auto array = sized<emm_array>();
    array.version = 3;
    array.data = 0x1000;
    array.ndim = 1;
    array.shape = shape;
    array.typestr = "<f4";
    array.stream = EMM_ARRAY_NO_STREAM;
    const std::vector<emm_status> found = {
        emm_get_plugin(&plugin),
        emm_probe_plugin("passthrough", &plugin),
        emm_get_driver(&driver),
        emm_get_driver_usage(&usage),
        emm_context_get_info(context, &at),
        emm_get_stats(context, &stats),
        emm_query(context, 0x1000, &block),
        emm_memory_get_info(memory, &info),
        emm_get_counters(&counters),
        emm_array_get_layout(&array, &layout, nullptr),
        emm_array_import(context, &array, EMM_STREAM_UNORDERED, 0, nullptr, nullptr, &memory,
                         &layout),
    };
    CHECK(found == std::vector<emm_status>(found.size(), EMM_E_INVALID_VALUE));
    CHECK_THAT(emm_last_error()->text,
               ContainsSubstring("emm_array_import: ret_layout->struct_size: expected the size"));
    CHECK(emm_memory_release(memory) == EMM_OK);
}

TEST_CASE("mapped memory on a device that cannot map host memory is refused in a sentence") {
    setenv("EMM_SIM", "mapping=0", 1);
    emm_context *context = recorded_context();
    if (!simulated_call_count()) {
        return;
    }
    void *host = nullptr;
    void *range = std::aligned_alloc(4096, 4096);
    emm_deviceptr ptr = 7;
    const char *const sentence = "device 0 cannot map host memory";
    CHECK(emm_mempin(context, range, 4096, EMM_HOST_MAPPED, &ptr) == EMM_E_NOT_SUPPORTED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring(sentence));
    CHECK(emm_memhostalloc(context, 4096, EMM_HOST_MAPPED, &host, &ptr) == EMM_E_NOT_SUPPORTED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring(sentence));
    CHECK(ptr == 7);
    CHECK(emm_mempin(context, range, 4096, 0, nullptr) == EMM_OK);
    CHECK(emm_memunpin(context, range, 4096) == EMM_OK);
    CHECK(emm_memhostalloc(context, 4096, 0, &host, &ptr) == EMM_OK);
    std::free(range);
}
