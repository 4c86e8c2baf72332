// Behaviour: pause and resume as a program sees them, on plugins with and without them.
#include "gpu.h"

#include <emm/emm.hpp>

#include <algorithm>
#include <vector>

namespace {

constexpr size_t whole_mib = 1 << 20;

bool pauses() {
    return plugin_name() == "pool";
}

uint64_t paused_bytes(emm_context *pool) {
    return stats_of(pool).paused_bytes;
}

emm_status pause(emm_context *pool, uint32_t flags = EMM_PAUSE_KEEP) {
    size_t released = 0;
    return emm_context_pause(pool, flags, &released);
}

} // namespace

TEST_CASE("a plugin that cannot pause says so in a sentence, and goes on") {
    const Gpu gpu;
    if (pauses()) {
        return;
    }
    const emm_deviceptr ptr = gpu.allocate(whole_mib);
    size_t released = 7;
    CHECK(emm_context_pause(gpu.emm(), EMM_PAUSE_KEEP, &released) == EMM_E_NOT_SUPPORTED);
    CHECK(released == 7);
    CHECK(std::string(emm_last_error()->text).find("pause") != std::string::npos);
    CHECK(emm_context_resume(gpu.emm(), 0) == EMM_OK);
    char host = 0;
    CHECK(emm_context_read_paused(gpu.emm(), ptr, 1, &host) == EMM_E_NOT_SUPPORTED);
    CHECK(gpu.free(ptr, whole_mib) == EMM_OK);
}

TEST_CASE("flags of pause and resume that are none are refused") {
    const Gpu gpu;
    for (const uint32_t flags : {0u, EMM_PAUSE_KEEP | EMM_PAUSE_DISCARD, EMM_PAUSE_UNSHARED, 9u}) {
        CHECK(emm_context_pause(gpu.emm(), flags, nullptr) == EMM_E_INVALID_VALUE);
    }
    CHECK(emm_context_resume(gpu.emm(), 4) == EMM_E_INVALID_VALUE);
    CHECK(emm_context_pause(nullptr, EMM_PAUSE_KEEP, nullptr) == EMM_E_INVALID_VALUE);
}

TEST_CASE("a named pool pauses alone, and the CUDA context with all its pools") {
    const Gpu gpu;
    if (!pauses()) {
        return;
    }
    emm_context *const weights = context_named(gpu.emm(), "weights"), *const cache = context_named(
                                                                          gpu.emm(), "kv-cache");
    const emm_deviceptr kept = allocate_in(weights, 8 * whole_mib),
                        other = allocate_in(cache, 8 * whole_mib);
    const emm_deviceptr own = gpu.allocate(8 * whole_mib);
    fill(kept, 8 * whole_mib, 0x11, nullptr);
    fill(other, 8 * whole_mib, 0x22, nullptr);
    const uint64_t before = device_bytes();
    size_t released = 0;
    REQUIRE(emm_context_pause(weights, EMM_PAUSE_KEEP, &released) == EMM_OK);
    CHECK(released == before - device_bytes());
    CHECK(paused_bytes(weights) == released);
    CHECK(paused_bytes(cache) == 0);
    std::vector<unsigned> host(8 * whole_mib / sizeof(unsigned));
    REQUIRE(emm_context_read_paused(weights, kept, 8 * whole_mib, host.data()) == EMM_OK);
    CHECK(std::count(host.begin(), host.end(), 0x11u) == ptrdiff_t(host.size()));
    CHECK(emm_context_read_paused(weights, other, 1, host.data()) == EMM_E_NOT_OWNED);
    CHECK(emm_context_read_paused(cache, other, 1, host.data()) == EMM_S_IGNORED);
    CHECK(emm_context_read_paused(cache, other, 0, host.data()) == EMM_OK);
    CHECK(emm_context_read_paused(weights, kept, 1, nullptr) == EMM_E_INVALID_VALUE);
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(weights, whole_mib, EMM_STREAM_UNORDERED, &none) == EMM_E_PAUSED);
    CHECK(emm_memfree(cache, allocate_in(cache, whole_mib), whole_mib, EMM_STREAM_UNORDERED) ==
          EMM_OK);
    REQUIRE(emm_context_pause(gpu.emm(), EMM_PAUSE_KEEP, &released) == EMM_OK);
    for (emm_context *const pool : {weights, cache, gpu.emm()}) {
        CHECK(paused_bytes(pool) > 0);
    }
    REQUIRE(emm_context_resume(gpu.emm(), 0) == EMM_OK);
    for (emm_context *const pool : {weights, cache, gpu.emm()}) {
        CHECK(paused_bytes(pool) == 0);
    }
    CHECK(last_word(kept, 8 * whole_mib) == 0x11);
    CHECK(last_word(other, 8 * whole_mib) == 0x22);
    CHECK(gpu.free(own, 8 * whole_mib) == EMM_OK);
}

TEST_CASE("what other processes may have open stays, or keeps a pool from being paused", "[sim]") {
    const Gpu gpu;
    if (!pauses()) {
        return;
    }
    emm_context *const pool = context_named(gpu.emm(), "shared");
    const emm_deviceptr open = allocate_in(pool, 8 * whole_mib),
                        other = allocate_in(pool, 32 * whole_mib);
    fill(open, 8 * whole_mib, 0x44, nullptr);
    fill(other, 32 * whole_mib, 0x55, nullptr);
    synchronize(nullptr);
    emm_ipc_handle handle = {};
    REQUIRE(emm_get_ipc_handle(pool, open, 8 * whole_mib, &handle) == EMM_OK);
    CHECK(pause(pool, EMM_PAUSE_KEEP | EMM_PAUSE_UNSHARED) == EMM_E_BUSY);
    const uint64_t before = device_bytes();
    size_t released = 0;
    REQUIRE(emm_context_pause(pool, EMM_PAUSE_DISCARD, &released) == EMM_OK);
    CHECK(released == before - device_bytes());
    CHECK(released >= 16 * whole_mib);
    CHECK(before - released >= 8 * whole_mib);
    CHECK(last_word(open, 8 * whole_mib) == 0x44);
    emm_ipc_handle none = {};
    CHECK(emm_get_ipc_handle(pool, open, 8 * whole_mib, &none) == EMM_E_PAUSED);
    CHECK(emm_release_ipc_handle(pool, &handle) == EMM_OK);
    REQUIRE(emm_context_resume(pool, 0) == EMM_OK);
    CHECK(last_word(open, 8 * whole_mib) == 0x44);
    REQUIRE(pause(pool, EMM_PAUSE_KEEP | EMM_PAUSE_UNSHARED) == EMM_OK);
    CHECK(device_bytes() <= before - 40 * whole_mib);
    REQUIRE(emm_context_resume(pool, 0) == EMM_OK);
    CHECK(last_word(open, 8 * whole_mib) == 0x44);
}

TEST_CASE("a block beside one that another process may have open is read while it is paused",
          "[sim]") {
    const Gpu gpu;
    if (!pauses()) {
        return;
    }
    constexpr size_t size = 3 * whole_mib; // so that neighbours share a piece
    emm_context *const pool = context_named(gpu.emm(), "neighbours");
    std::vector<emm_deviceptr> blocks;
    for (unsigned i = 0; i < 4; i++) {
        blocks.push_back(allocate_in(pool, size));
        fill(blocks.back(), size, 0x60 + i, nullptr);
    }
    synchronize(nullptr);
    emm_ipc_handle handle = {};
    REQUIRE(emm_get_ipc_handle(pool, blocks[1], size, &handle) == EMM_OK);
    REQUIRE(pause(pool) == EMM_OK);
    std::vector<unsigned> host(size / sizeof(unsigned));
    for (unsigned i = 0; i < 4; i++) {
        const emm_status expected = i == 1 ? EMM_S_IGNORED : EMM_OK;
        CHECK(emm_context_read_paused(pool, blocks[i], size, host.data()) == expected);
        CHECK((i == 1 || std::count(host.begin(), host.end(), 0x60 + i) == ptrdiff_t(host.size())));
    }
    REQUIRE(emm_context_resume(pool, 0) == EMM_OK);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(last_word(blocks[i], size) == 0x60 + i);
    }
    CHECK(emm_release_ipc_handle(pool, &handle) == EMM_OK);
}

TEST_CASE("where one of several pools cannot be paused, none is") {
    const Gpu gpu;
    if (!pauses()) {
        return;
    }
    emm_context *const first = context_named(gpu.emm(), "first"), *const last = context_named(
                                                                      gpu.emm(), "last");
    for (emm_context *const refuses : {first, last}) {
        allocate_in(first, whole_mib);
        allocate_in(last, whole_mib);
        REQUIRE(emm_defer_cleanup_begin(refuses) == EMM_OK);
        CHECK(pause(gpu.emm()) == EMM_E_BUSY);
        CHECK(paused_bytes(first) + paused_bytes(last) + paused_bytes(gpu.emm()) == 0);
        REQUIRE(emm_defer_cleanup_end(refuses) == EMM_OK);
    }
    REQUIRE(pause(last) == EMM_OK); // stays so
    REQUIRE(emm_defer_cleanup_begin(first) == EMM_OK);
    CHECK(pause(gpu.emm()) == EMM_E_BUSY);
    CHECK(paused_bytes(last) > 0);
}

TEST_CASE("a failed pause names the pools that cannot be resumed, and a resume tries again",
          "[sim]") {
    const Gpu gpu;
    if (!pauses()) {
        return;
    }
    emm_context *const first = context_named(gpu.emm(), "first"), *const last = context_named(
                                                                      gpu.emm(), "last");
    for (emm_context *const refuses : {first, last}) {
        const emm_deviceptr ptr = allocate_in(first, whole_mib),
                            other = allocate_in(last, whole_mib);
        gpu.free(gpu.allocate(whole_mib), whole_mib);
        REQUIRE(emm_defer_cleanup_begin(refuses) == EMM_OK);
        fail_next("cuMemCreate@1+");
        CHECK(pause(gpu.emm()) == EMM_E_BUSY);
        fail_next("");
        const std::string text = emm_last_error()->text;
        for (emm_context *const pool : {first, last}) {
            const std::string name = pool == first ? "first" : "last";
            CHECK((paused_bytes(pool) > 0) ==
                  (text.find("pool " + name + " stays paused") != std::string::npos));
        }
        REQUIRE(emm_defer_cleanup_end(refuses) == EMM_OK);
        REQUIRE(emm_context_resume(gpu.emm(), 0) == EMM_OK);
        CHECK(paused_bytes(first) + paused_bytes(last) == 0);
        CHECK(emm_memfree(first, ptr, whole_mib, EMM_STREAM_UNORDERED) == EMM_OK);
        CHECK(emm_memfree(last, other, whole_mib, EMM_STREAM_UNORDERED) == EMM_OK);
    }
}

TEST_CASE("a resume finds what other pools keep, and fails where there is not enough", "[sim]") {
    const Gpu gpu;
    if (!pauses()) {
        return;
    }
    emm_context *const engine = context_named(gpu.emm(), "engine"), *const other = context_named(
                                                                        gpu.emm(), "other");
    const size_t large = 5000 * whole_mib;
    const emm_deviceptr ptr = allocate_in(engine, large);
    REQUIRE(pause(engine, EMM_PAUSE_DISCARD) == EMM_OK);
    const emm_deviceptr meanwhile = allocate_in(other, large);
    CHECK(emm_context_resume(engine, 0) == EMM_E_OUT_OF_MEMORY);
    CHECK(std::string(emm_last_error()->text).find("paused") != std::string::npos);
    CHECK(paused_bytes(engine) >= large);
    REQUIRE(emm_memfree(other, meanwhile, large, EMM_STREAM_UNORDERED) == EMM_OK); // emm caches it
    CHECK(emm_context_resume(engine, 0) == EMM_OK);
    fill(ptr, whole_mib, 0x33, nullptr); // all of it would be this process's memory
    synchronize(nullptr);
}

TEST_CASE("while a pool is paused its handles live, are released, and are dropped by a reset") {
    const Gpu gpu;
    if (!pauses()) {
        return;
    }
    emm_memory *freed = nullptr, *dropped = nullptr, *none = nullptr;
    REQUIRE(emm_memory_alloc(gpu.emm(), whole_mib, EMM_STREAM_LEGACY, &freed) == EMM_OK);
    REQUIRE(emm_memory_alloc(gpu.emm(), whole_mib, EMM_STREAM_LEGACY, &dropped) == EMM_OK);
    REQUIRE(pause(gpu.emm()) == EMM_OK);
    CHECK(emm_memory_alloc(gpu.emm(), whole_mib, EMM_STREAM_LEGACY, &none) == EMM_E_PAUSED);
    CHECK(emm_memory_release(freed) == EMM_OK);
    REQUIRE(emm_context_reset(gpu.emm()) == EMM_OK);
    CHECK(paused_bytes(gpu.emm()) == 0);
    CHECK(emm_memory_release(dropped) == EMM_OK);
    CHECK(gpu.free(gpu.allocate(whole_mib), whole_mib) == EMM_OK);
    REQUIRE(pause(gpu.emm()) == EMM_OK);
    REQUIRE(emm_context_retire(gpu.emm()) == EMM_OK);
    CHECK(pause(gpu.emm()) == EMM_E_RETIRED);
}

TEST_CASE("a guard resumes when it is told to, or when it ends") {
    const Gpu gpu;
    if (!pauses()) {
        return;
    }
    const emm_deviceptr ptr = gpu.allocate(whole_mib);
    {
        emm::Pause told(gpu.emm());
        CHECK(told.released() >= whole_mib);
        CHECK(paused_bytes(gpu.emm()) > 0);
        told.resume(EMM_RESUME_KEEP_COPY);
        CHECK(paused_bytes(gpu.emm()) == 0);
        CHECK(gpu.stats().host_reserved_bytes > 0); // its end does not resume once more
    }
    CHECK(gpu.stats().host_reserved_bytes > 0);
    { const emm::Pause guard(gpu.emm(), EMM_PAUSE_DISCARD); }
    CHECK(paused_bytes(gpu.emm()) == 0);
    CHECK(gpu.stats().host_reserved_bytes == 0);
    CHECK(gpu.free(ptr, whole_mib) == EMM_OK);
}

TEST_CASE("a guard resumes what it has paused itself, and no pool that was paused before") {
    const Gpu gpu;
    if (!pauses()) {
        return;
    }
    emm_context *const asleep = context_named(gpu.emm(), "asleep"), *const awake = context_named(
                                                                        gpu.emm(), "awake");
    allocate_in(asleep, whole_mib);
    allocate_in(awake, whole_mib);
    gpu.allocate(whole_mib);
    REQUIRE(pause(asleep) == EMM_OK);
    CHECK(pause(asleep) == EMM_S_IGNORED);
    {
        emm::Pause again(asleep);
        CHECK(again.released() == 0);
        again.resume();
    }
    CHECK(paused_bytes(asleep) > 0);
    {
        const emm::Pause all(gpu.emm());
        CHECK(paused_bytes(awake) > 0);
        CHECK(pause(gpu.emm()) == EMM_S_IGNORED);
    }
    CHECK(paused_bytes(gpu.emm()) + paused_bytes(awake) == 0);
    CHECK(paused_bytes(asleep) > 0);
    REQUIRE(emm_context_resume(gpu.emm(), 0) == EMM_OK);
    CHECK(paused_bytes(asleep) == 0);
}

TEST_CASE("a guard leaves what an earlier pause of the same context has paused") {
    const Gpu gpu;
    if (!pauses()) {
        return;
    }
    gpu.allocate(whole_mib);
    REQUIRE(pause(gpu.emm()) == EMM_OK);
    {
        emm_context *const later = context_named(gpu.emm(), "later");
        allocate_in(later, whole_mib);
        { const emm::Pause again(gpu.emm()); }
        CHECK(paused_bytes(later) == 0);
        CHECK(paused_bytes(gpu.emm()) > 0);
    }
    REQUIRE(emm_context_resume(gpu.emm(), EMM_RESUME_UNDO) == EMM_OK);
    CHECK(paused_bytes(gpu.emm()) == 0);
}

TEST_CASE("the log tells of a resume where there was something to resume, and else nothing") {
    const Gpu gpu;
    static std::vector<std::string> lines;
    lines.clear();
    REQUIRE(emm_set_log_callback(
                EMM_LOG_INFO,
                [](int32_t, const char *text, void *) {
                    if (std::string(text).find("is resumed") != std::string::npos) {
                        lines.push_back(text);
                    }
                },
                nullptr) == EMM_OK);
    CHECK(emm_context_resume(gpu.emm(), 0) == EMM_OK);
    CHECK(lines.empty());
    if (pauses()) {
        REQUIRE(pause(gpu.emm()) == EMM_OK); // of no memory
        CHECK(emm_context_resume(gpu.emm(), 0) == EMM_OK);
        CHECK(lines.size() == 1);
    }
    REQUIRE(emm_set_log_callback(EMM_LOG_INFO, nullptr, nullptr) == EMM_OK);
}

TEST_CASE("a pressure callback cannot pause") {
    const Gpu gpu;
    static emm_status inside = EMM_OK;
    inside = EMM_OK;
    emm_set_pressure_callback(
        [](emm_context *context, size_t, void *) -> size_t {
            inside = pause(context);
            return 0;
        },
        nullptr);
    emm_deviceptr none = 0;
    size_t free = 0, total = 0;
    REQUIRE(emm_get_memory_info(gpu.emm(), &free, &total) == EMM_OK);
    gpu.allocate(most_bytes() - total + whole_mib);
    CHECK(emm_memalloc(gpu.emm(), total, EMM_STREAM_UNORDERED, &none) == EMM_E_OUT_OF_MEMORY);
    emm_set_pressure_callback(nullptr, nullptr);
    CHECK(inside == EMM_E_REENTERED);
}
