// Behaviour: plugins that answer success without a result, write too much, or throw exceptions
// without a text.
#include "catch.h"
#include "recorder.h"

#include <cstring>
#include <exception>

namespace {

struct Speechless : std::exception {
    const char *what() const noexcept override { return nullptr; }
};

// A struct of a later version, which a plugin might fill without a look at struct_size.
template <class Struct> struct Later {
    Struct known;
    unsigned char more[200];
};

} // namespace

TEST_CASE("a success without an address is the plugin's failure, and leaves the output alone") {
    emm_plugin &table = Recorder::the().table;
    table.memalloc = [](emm_manager *, size_t size, emm_stream, emm_deviceptr *) -> emm_status {
        return size == 1 ? EMM_OK : EMM_S_IGNORED;
    };
    table.memhostalloc = [](emm_manager *, size_t, uint32_t, void **,
                            emm_deviceptr *) -> emm_status { return EMM_OK; };
    table.memhostfree = [](emm_manager *, void *, size_t, uint32_t, emm_stream) -> emm_status {
        return EMM_OK;
    };
    table.memallocmanaged = [](emm_manager *, size_t, uint32_t, emm_deviceptr *) -> emm_status {
        return EMM_OK;
    };
    table.memfreemanaged = [](emm_manager *, emm_deviceptr, size_t, emm_stream) -> emm_status {
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    emm_deviceptr ptr = 7;
    void *host = &ptr;
    emm_memory *memory = nullptr;
    for (int round = 0; round < 2; round++) {
        for (const size_t size : {size_t(1), size_t(2)}) {
            CHECK(emm_memalloc(context, size, EMM_STREAM_LEGACY, &ptr) == EMM_E_PLUGIN_FAILED);
            CHECK_THAT(emm_last_error()->text,
                       ContainsSubstring(
                           "plugin recorder, memalloc: it returned success without an address"));
        }
        CHECK(emm_memhostalloc(context, 64, 0, &host, nullptr) == EMM_E_PLUGIN_FAILED);
        CHECK_THAT(emm_last_error()->text, ContainsSubstring("memhostalloc"));
        CHECK(emm_memallocmanaged(context, 64, EMM_ATTACH_GLOBAL, &ptr) == EMM_E_PLUGIN_FAILED);
        CHECK_THAT(emm_last_error()->text, ContainsSubstring("memallocmanaged"));
        CHECK(emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &memory) == EMM_E_PLUGIN_FAILED);
        CHECK(emm_memory_hostalloc(context, 64, 0, &memory) == EMM_E_PLUGIN_FAILED);
        // The second time watched, which is the slow path.
        REQUIRE(emm_set_event_hook([](const emm_event *, void *) {}, nullptr, nullptr) == EMM_OK);
    }
    CHECK(ptr == 7);
    CHECK(host == &ptr);
    CHECK(memory == nullptr);
}

TEST_CASE("a plugin that writes more than it is asked for is told so, and harms nothing") {
    emm_plugin &table = Recorder::the().table;
    table.get_stats = [](emm_manager *, emm_stats *ret_stats) -> emm_status {
        std::memset(ret_stats, 0x11, sizeof(Later<emm_stats>));
        return EMM_OK;
    };
    table.query = [](emm_manager *, emm_deviceptr, emm_block_info *ret_info) -> emm_status {
        std::memset(ret_info, 0x11, sizeof(Later<emm_block_info>));
        return EMM_OK;
    };
    table.get_ipc_handle = [](emm_manager *, emm_deviceptr, size_t,
                              emm_ipc_handle *ret_handle) -> emm_status {
        std::memset(ret_handle, 0x11, sizeof(Later<emm_ipc_handle>));
        return EMM_OK;
    };
    table.release_ipc_handle = [](emm_manager *, const emm_ipc_handle *) -> emm_status {
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    auto stats = sized<emm_stats>();
    auto info = sized<emm_block_info>();
    emm_ipc_handle handle = {};
    CHECK(emm_get_stats(context, &stats) == EMM_E_PLUGIN_FAILED);
    CHECK_THAT(emm_last_error()->text,
               ContainsSubstring("plugin recorder, get_stats: it wrote past the " +
                                 std::to_string(sizeof stats) + " bytes"));
    CHECK(emm_query(context, 0x1000, &info) == EMM_E_PLUGIN_FAILED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("query: it wrote past"));
    CHECK(emm_get_ipc_handle(context, 0x1000, 64, &handle) == EMM_E_PLUGIN_FAILED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("get_ipc_handle: it wrote past"));
    CHECK(stats.live_bytes == 0);
    CHECK(info.base == 0);
    CHECK(handle.size == 0);
}

TEST_CASE("a plugin that changes struct_size leads no reader past its struct") {
    Recorder::the().table.get_stats = [](emm_manager *, emm_stats *ret_stats) -> emm_status {
        ret_stats->struct_size = 4000;
        ret_stats->live_bytes = 5;
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    Later<emm_stats> stats = {};
    stats.known.struct_size = sizeof stats;
    CHECK(emm_get_stats(context, &stats.known) == EMM_OK);
    CHECK(stats.known.live_bytes == 5);
    CHECK(stats.more[0] == 0);
    CHECK(stats.more[sizeof stats.more - 1] == 0);
}

TEST_CASE("an empty failure text of a plugin is replaced by the words of its status") {
    Recorder::the().table.memalloc = [](emm_manager *, size_t, emm_stream, emm_deviceptr *) {
        return Recorder::the().host->fail(EMM_E_OUT_OF_MEMORY, 0, "");
    };
    emm_deviceptr ptr = 7;
    CHECK(emm_memalloc(recorded_context(), 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring(emm_status_text(EMM_E_OUT_OF_MEMORY)));
}

TEST_CASE("a get_memory_info that succeeds and writes nothing has failed") {
    Recorder::the().table.get_memory_info = [](emm_manager *, size_t *, size_t *) -> emm_status {
        return EMM_OK;
    };
    size_t free = 7, total = 7;
    CHECK(emm_get_memory_info(recorded_context(), &free, &total) == EMM_E_PLUGIN_FAILED);
    CHECK(free == 7);
}

TEST_CASE("what get_memory_info writes before it fails does not reach the caller") {
    Recorder::the().table.get_memory_info = [](emm_manager *, size_t *ret_free,
                                               size_t *) -> emm_status {
        *ret_free = 1;
        return EMM_E_DRIVER;
    };
    emm_context *context = recorded_context();
    size_t free = 7, total = 7;
    CHECK(emm_get_memory_info(context, &free, &total) == EMM_E_DRIVER);
    CHECK(free == 7);
}

TEST_CASE("an exception whose what() is NULL becomes a sentence") {
    emm_plugin &table = Recorder::the().table;
    table.memalloc = [](emm_manager *, size_t, emm_stream, emm_deviceptr *) -> emm_status {
        throw Speechless();
    };
    table.trim = [](emm_manager *, size_t, size_t *) -> emm_status { throw Speechless(); };
    emm_context *context = recorded_context();
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_PLUGIN_EXCEPTION);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("what() is NULL"));
    CHECK(emm_trim(context, 0, nullptr) == EMM_E_PLUGIN_EXCEPTION);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("what() is NULL"));
}

namespace {

struct SpeechlessManager {
    SpeechlessManager(const emm_host &, const emm_context_info &, const char *const *) {}
    emm_status memalloc(size_t, emm_stream, emm_deviceptr *) { throw Speechless(); }
    emm_status memfree(emm_deviceptr, size_t, emm_stream) { return EMM_OK; }
};

} // namespace

TEST_CASE("the adaptor for C++ knows exceptions without a text") {
    static const emm_plugin table =
        emm::make_plugin<SpeechlessManager>("speechless", "1.0", "throws");
    REQUIRE(emm_set_plugin_entry([](const emm_host *) { return &table; }, nullptr) == EMM_OK);
    emm_context *context = context_for_device();
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_PLUGIN_EXCEPTION);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("an exception without a text"));
}
