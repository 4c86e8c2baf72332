// A plugin of four functions: what the host's defaults do for it.
#include "catch.h"
#include "driver_calls.h"
#include "recorder.h"

#include <cstdlib>

TEST_CASE("pinned memory comes from the driver and goes back through the queue") {
    emm_context *context = recorded_context();
    void *host = nullptr;
    emm_deviceptr device = 0;
    REQUIRE(emm_memhostalloc(context, 1 << 20, EMM_HOST_MAPPED | EMM_HOST_PORTABLE, &host,
                             &device) == EMM_OK);
    CHECK(host != nullptr);
    CHECK(device != 0);
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    CHECK(emm_get_stats(context, &stats) == EMM_OK);
    CHECK(stats.host_live_bytes == 1 << 20);
    CHECK(emm_memhostfree(context, host, 1 << 20, 0, EMM_STREAM_UNORDERED) == EMM_OK);
    emm_counters counters = {};
    counters.struct_size = sizeof counters;
    emm_get_counters(&counters);
    CHECK(counters.pending_count == 1);
    CHECK(counters.pending_bytes == 1 << 20);
}

TEST_CASE("without the mapped flag there is no device address") {
    emm_context *context = recorded_context();
    void *host = nullptr;
    emm_deviceptr device = 7;
    REQUIRE(emm_memhostalloc(context, 4096, 0, &host, &device) == EMM_OK);
    CHECK(device == 0);
    CHECK(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
}

TEST_CASE("a stale free of pinned memory is refused without harm") {
    emm_context *context = recorded_context();
    void *host = nullptr;
    REQUIRE(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
    CHECK(emm_memhostfree(context, host, 99, 0, EMM_STREAM_UNORDERED) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("expected 4096, found 99"));
    CHECK(emm_memhostfree(context, host, 0, 0, EMM_STREAM_UNORDERED) == EMM_OK);
    CHECK(emm_memhostfree(context, host, 0, 0, EMM_STREAM_UNORDERED) == EMM_E_NOT_OWNED);
    CHECK(emm_memunpin(context, host, 4096) == EMM_E_NOT_OWNED);
}

TEST_CASE("a range is pinned, refused a second time, and unpinned at once") {
    emm_context *context = recorded_context();
    void *range = std::aligned_alloc(4096, 8192);
    emm_deviceptr device = 0;
    REQUIRE(emm_mempin(context, range, 8192, EMM_HOST_MAPPED, &device) == EMM_OK);
    CHECK(device != 0);
    CHECK(emm_mempin(context, range, 8192, 0, nullptr) == EMM_E_BUSY);
    CHECK(emm_memunpin(context, range, 8192) == EMM_OK);
    CHECK(emm_memunpin(context, range, 8192) == EMM_E_NOT_OWNED);
    CHECK(emm_mempin(context, range, 8192, 0, nullptr) == EMM_OK);
    CHECK(emm_memunpin(context, range, 8192) == EMM_OK);
    std::free(range);
}

TEST_CASE("managed memory comes and goes") {
    emm_context *context = recorded_context();
    emm_deviceptr ptr = 0;
    REQUIRE(emm_memallocmanaged(context, 1 << 20, EMM_ATTACH_GLOBAL, &ptr) == EMM_OK);
    CHECK(ptr % 256 == 0);
    CHECK(emm_memfreemanaged(context, ptr, 0, EMM_STREAM_UNORDERED) == EMM_OK);
    CHECK(emm_memfreemanaged(context, ptr, 0, EMM_STREAM_UNORDERED) == EMM_E_NOT_OWNED);
}

TEST_CASE("memory figures come from the driver") {
    emm_context *context = recorded_context();
    size_t free = 0, total = 0;
    REQUIRE(emm_get_memory_info(context, &free, &total) == EMM_OK);
    CHECK(total > 0);
    CHECK(free <= total);
}

TEST_CASE("what the plugin does not do is refused politely or is nothing") {
    emm_context *context = recorded_context();
    emm_block_info block = {};
    block.struct_size = sizeof block;
    size_t released = 7;
    CHECK(emm_query(context, 0x1000, &block) == EMM_E_NOT_SUPPORTED);
    CHECK(emm_record_use(context, 0x1000, 1, EMM_STREAM_LEGACY) == EMM_E_NOT_SUPPORTED);
    CHECK(emm_set_peer_access(context, 1, EMM_ACCESS_READ) == EMM_E_NOT_SUPPORTED);
    CHECK(emm_trim(context, 0, &released) == EMM_OK);
    CHECK(released == 0);
    CHECK(emm_stream_register(context, EMM_STREAM_PER_THREAD) == EMM_OK);
    CHECK(emm_stream_retire(context, EMM_STREAM_PER_THREAD) == EMM_OK);
}

TEST_CASE("reset and retire give the defaults' memory back") {
    emm_context *context = recorded_context();
    void *host = nullptr;
    emm_deviceptr ptr = 0;
    REQUIRE(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
    REQUIRE(emm_memallocmanaged(context, 4096, EMM_ATTACH_GLOBAL, &ptr) == EMM_OK);
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(emm_memhostfree(context, host, 0, 0, EMM_STREAM_UNORDERED) == EMM_E_NOT_OWNED);
    CHECK(emm_memfreemanaged(context, ptr, 0, EMM_STREAM_UNORDERED) == EMM_E_NOT_OWNED);
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    CHECK(emm_get_stats(context, &stats) == EMM_OK);
    CHECK(stats.host_live_bytes == 0);
}
