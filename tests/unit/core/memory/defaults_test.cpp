// Behaviour: a plugin of four functions, completed by the host's defaults.
#include "../driver_calls.h"
#include "../host_memory.h"
#include "../recorder.h"
#include "catch.h"
#include "core/memory/default_memory.h"
#include "core/record/context.h"

#include <cstdlib>
#include <sys/mman.h>

namespace {

uint64_t pending() {
    return counters().pending_count;
}

// Bytes written through one address are read through the other.
bool keeps(emm_memory *memory) {
    const emm_memory_info info = info_of(memory);
    const uint64_t written = 0x1122334455667788;
    uint64_t read = 0;
    if (info.host) {
        *static_cast<volatile uint64_t *>(info.host) = written;
    } else {
        REQUIRE(CU(cuMemcpyHtoD)(info.ptr, &written, sizeof written) == CUDA_SUCCESS);
    }
    if (info.ptr != 0) {
        REQUIRE(CU(cuMemcpyDtoH)(&read, info.ptr, sizeof read) == CUDA_SUCCESS);
    } else {
        read = *static_cast<volatile uint64_t *>(info.host);
    }
    return read == written;
}

// False on a real machine. `calls` as in EMM_SIM's fail.
bool driver_will_fail(const char *calls) {
    const auto fail =
        reinterpret_cast<CUresult (*)(const char *)>(emm_driver_entry("simcuda_fail", 12000));
    return fail && fail(calls) == CUDA_SUCCESS;
}

// The context of device 0 on a simulated machine with these settings; NULL on a real machine, which
// may be different.
emm_context *recorded_beside_a_peer(const char *settings) {
    setenv("EMM_SIM", settings, 1);
    Recorder::the().table.set_access = [](emm_manager *, int32_t, uint32_t) -> emm_status {
        Recorder::the().note("set_access");
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    if (!driver_info().simulated) {
        WARN("skipped: the driver is not simulated");
        return nullptr;
    }
    return context;
}

} // namespace

TEST_CASE("pinned memory comes from the driver and goes back through the queue") {
    emm_context *context = recorded_context();
    void *host = nullptr;
    emm_deviceptr device = 0;
    REQUIRE(emm_memhostalloc(context, 1 << 20, EMM_HOST_MAPPED | EMM_HOST_PORTABLE, &host,
                             &device) == EMM_OK);
    CHECK(host != nullptr);
    CHECK(device != 0);
    CHECK(stats_of(context).host_live_bytes == 1 << 20);
    CHECK(emm_memhostfree(context, host, 1 << 20, 0, EMM_STREAM_UNORDERED) == EMM_E_NOT_OWNED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("other flags"));
    CHECK(emm_memhostfree(context, host, 1 << 20, EMM_HOST_MAPPED | EMM_HOST_PORTABLE,
                          EMM_STREAM_UNORDERED) == EMM_OK);
    CHECK(counters().pending_count == 1);
    CHECK(counters().pending_bytes == 1 << 20);
}

TEST_CASE("pinned memory whose free waits is reserved, and not live") {
    emm_context *context = recorded_context();
    const auto stats = [&] { return stats_of(context); };
    void *host = nullptr;
    REQUIRE(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
    REQUIRE(emm_memhostfree(context, host, 4096, 0, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(stats().host_live_bytes == 0);
    CHECK(stats().host_reserved_bytes == 4096);
    CHECK(emm_trim(context, 0, nullptr) == EMM_OK);
    CHECK(stats().host_reserved_bytes == 0);
}

TEST_CASE("a trim frees pinned memory that the driver has refused once to free", "[sim]") {
    emm_context *context = recorded_context();
    const auto reserved = [&] { return stats_of(context).host_reserved_bytes; };
    void *host = nullptr;
    REQUIRE(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
    REQUIRE(emm_memhostfree(context, host, 4096, 0, EMM_STREAM_LEGACY) == EMM_OK);
    REQUIRE(driver_will_fail("cuMemFreeHost@1:999"));
    CHECK(emm_trim(context, 0, nullptr) == EMM_OK);
    CHECK(reserved() == 0);
}

TEST_CASE("pinned memory of the default is aligned to 256 bytes, however little is asked for") {
    emm_context *context = recorded_context();
    for (size_t size = 1; size <= 100'000; size = size * 3 + 1) {
        void *host = nullptr;
        emm_deviceptr device = 0;
        REQUIRE(emm_memhostalloc(context, size, EMM_HOST_MAPPED, &host, &device) == EMM_OK);
        CHECK(reinterpret_cast<uintptr_t>(host) % 256 == 0);
        CHECK(device % 256 == 0);
    } // kept, so that each has neighbours
}

TEST_CASE("without the mapped flag there is no device address") {
    emm_context *context = recorded_context();
    void *host = nullptr;
    emm_deviceptr device = 7;
    REQUIRE(emm_memhostalloc(context, 4096, 0, &host, &device) == EMM_OK);
    CHECK(device == 0);
    CHECK(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
}

#if EMM_TEST_FAILS_ALLOCATIONS
// The calling layer may be C, and hold a lock.
TEST_CASE("without memory a slot that the host fills answers a status, and throws nothing") {
    emm_context *context = recorded_context();
    const emm_plugin &slots = emm::core::default_slots();
    emm_manager *const self = context->defaults;
    const auto status_of = [](auto call) {
        has_memory = false;
        emm_status status = EMM_OK;
        try {
            status = call();
        } catch (...) {
            status = EMM_E_PLUGIN_EXCEPTION;
        }
        has_memory = true;
        return status;
    };
    void *host = nullptr;
    emm_deviceptr device = 0;
    emm_block_info block = {};
    CHECK(status_of([&] { return slots.memhostalloc(self, 4096, 0, &host, &device); }) ==
          EMM_E_OUT_OF_HOST_MEMORY);
    CHECK(status_of([&] { return slots.mempin(self, &block, 4096, 0, &device); }) ==
          EMM_E_OUT_OF_HOST_MEMORY);
    CHECK(status_of([&] { return slots.memallocmanaged(self, 4096, 0, &device); }) ==
          EMM_E_OUT_OF_HOST_MEMORY);
    CHECK(status_of([&] { return slots.query(self, 4096, &block); }) == EMM_E_NOT_SUPPORTED);
    CHECK(status_of([&] { return slots.set_access(self, 1, 0); }) == EMM_E_NOT_SUPPORTED);
}
#endif

TEST_CASE("a stale free of pinned memory is refused without harm") {
    emm_context *context = recorded_context();
    void *host = nullptr;
    REQUIRE(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
    CHECK(emm_memhostfree(context, host, 99, 0, EMM_STREAM_UNORDERED) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text,
               ContainsSubstring("as 99 bytes, which was allocated as 4096"));
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

TEST_CASE("a range that a reset could not unpin is unpinned before it is pinned again", "[sim]") {
    emm_context *context = recorded_context();
    void *range = std::aligned_alloc(4096, 8192);
    REQUIRE(emm_mempin(context, range, 8192, 0, nullptr) == EMM_OK);
    REQUIRE(driver_will_fail("cuMemHostUnregister@1:999"));
    emm_context_reset(context);
    CHECK(emm_mempin(context, range, 8192, 0, nullptr) == EMM_OK);
    CHECK(emm_memunpin(context, range, 8192) == EMM_OK);
    std::free(range);
}

TEST_CASE("a range that the process has not, or may not write to, cannot be pinned") {
    emm_context *context = recorded_context();
    const auto at = [](uintptr_t address) { return reinterpret_cast<void *>(address); };
    void *const read_only = mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    emm_deviceptr device = 0;
    CHECK(emm_mempin(context, at(0x10), 4096, 0, nullptr) == EMM_E_INVALID_VALUE);
    CHECK(emm_mempin(context, at(0x10), 16, EMM_HOST_MAPPED, &device) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("cannot pin 16 bytes at 0x10"));
    CHECK(emm_mempin(context, read_only, 8192, 0, nullptr) == EMM_E_INVALID_VALUE);
    CHECK(emm_mempin(context, read_only, 8192, EMM_HOST_READ_ONLY, nullptr) == EMM_OK);
    CHECK(emm_memunpin(context, read_only, 8192) == EMM_OK);
    CHECK(emm_mempin(context, read_only, SIZE_MAX, 0, nullptr) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("within the address space"));
    emm_memory *memory = nullptr;
    CHECK(emm_memory_pin(context, read_only, SIZE_MAX, 0, nullptr, nullptr, &memory) ==
          EMM_E_INVALID_VALUE);
    munmap(read_only, 8192);
}

TEST_CASE("a range is unpinned without its size, and not with another one") {
    emm_context *context = recorded_context();
    void *range = std::aligned_alloc(4096, 8192);
    REQUIRE(emm_mempin(context, range, 8192, 0, nullptr) == EMM_OK);
    CHECK(emm_memunpin(context, range, 4096) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text,
               ContainsSubstring("as 4096 bytes, which was allocated as 8192"));
    CHECK(emm_memunpin(context, range, 0) == EMM_OK);
    CHECK(emm_memunpin(context, range, 0) == EMM_E_NOT_OWNED);
    CHECK(emm_memunpin(context, nullptr, 0) == EMM_OK);
    std::free(range);
}

TEST_CASE("an export of an address that is no memory is refused by the default") {
    emm_context *context = recorded_context();
    emm_ipc_handle handle = {};
    CHECK(emm_get_ipc_handle(context, 0xabc000, 4096, &handle) == EMM_E_NOT_OWNED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("0xabc000"));
}

TEST_CASE("managed memory is created and deleted again and again") {
    emm_context *context = recorded_context();
    emm_deviceptr ptr = 0;
    REQUIRE(emm_memallocmanaged(context, 1 << 20, EMM_ATTACH_GLOBAL, &ptr) == EMM_OK);
    CHECK(ptr % 256 == 0);
    CHECK(emm_memfreemanaged(context, ptr, 0, EMM_STREAM_UNORDERED) == EMM_OK);
    CHECK(emm_memfreemanaged(context, ptr, 0, EMM_STREAM_UNORDERED) == EMM_E_NOT_OWNED);
}

// Otherwise the driver would apply the program's advice for the old memory to new memory.
TEST_CASE("managed memory that is freed is the driver's at once, but in a section") {
    emm_context *context = recorded_context();
    emm_deviceptr ptr = 0;
    for (const bool in_section : {false, true}) {
        REQUIRE(emm_memallocmanaged(context, 256, EMM_ATTACH_GLOBAL, &ptr) == EMM_OK);
        if (in_section) {
            REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
        }
        CHECK(emm_memfreemanaged(context, ptr, 256, EMM_STREAM_UNORDERED) == EMM_OK);
        CHECK(pending() == (in_section ? 1 : 0));
        if (in_section) {
            CHECK(emm_defer_cleanup_end(context) == EMM_OK);
        }
    }
}

TEST_CASE("the defaults free nothing on a stream that captures, and say why") {
    emm_context *context = recorded_context();
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    void *host = nullptr;
    emm_deviceptr managed = 0;
    REQUIRE(CU(cuCtxSetCurrent)(context->cuda_context) == CUDA_SUCCESS);
    REQUIRE(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
    REQUIRE(emm_memallocmanaged(context, 4096, EMM_ATTACH_GLOBAL, &managed) == EMM_OK);
    REQUIRE(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(emm_memhostfree(context, host, 4096, 0, stream) == EMM_E_CAPTURING);
    CHECK(emm_memfreemanaged(context, managed, 4096, stream) == EMM_E_CAPTURING);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("the stream is capturing"));
    CHECK(pending() == 0);
    CHECK(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
    CHECK(CU(cuGraphDestroy)(graph) == CUDA_SUCCESS);
    CHECK(emm_memhostfree(context, host, 4096, 0, stream) == EMM_OK);
    CHECK(emm_memfreemanaged(context, managed, 4096, stream) == EMM_OK);
    CHECK(CU(cuStreamDestroy)(stream) == CUDA_SUCCESS);
}

TEST_CASE("a plugin file of four functions does every kind of memory, by the host's defaults") {
    setenv("EMM_PLUGIN_PATH", EMM_TEST_FIXTURES, 1);
    REQUIRE(emm_set_plugin("good") == EMM_OK);
    emm_context *context = context_for_device();
    // For the fixture's cuMemAlloc.
    REQUIRE(CU(cuCtxSetCurrent)(info_of(context).cuda_context) == CUDA_SUCCESS);
    emm_memory *made[5] = {};
    void *range = std::aligned_alloc(4096, 8192);
    CHECK(emm_memory_alloc(context, 8192, EMM_STREAM_LEGACY, &made[0]) == EMM_OK);
    CHECK(emm_memory_hostalloc(context, 8192, EMM_HOST_WRITE_COMBINED, &made[1]) == EMM_OK);
    CHECK(emm_memory_hostalloc(context, 8192, EMM_HOST_MAPPED | EMM_HOST_PORTABLE, &made[2]) ==
          EMM_OK);
    CHECK(emm_memory_pin(context, range, 8192, EMM_HOST_MAPPED, range, &std::free, &made[3]) ==
          EMM_OK);
    CHECK(emm_memory_managed(context, 8192, EMM_ATTACH_GLOBAL, &made[4]) == EMM_OK);
    for (size_t i = 0; i < 5; ++i) {
        INFO(i);
        CHECK(keeps(made[i]));
        CHECK(emm_memory_release(made[i]) == EMM_OK);
    }
    // Device memory is the plugin's own affair. Unpinning and the free of managed memory are
    // immediate.
    CHECK(pending() == 2);
    size_t free = 0, total = 0;
    CHECK(emm_get_memory_info(context, &free, &total) == EMM_OK);
    CHECK(emm_context_reset(context) == EMM_OK);
    CHECK(pending() == 0);
    CHECK(emm_context_retire(context) == EMM_OK);
}

TEST_CASE("the defaults of a plugin of four functions keep to deferred sections") {
    emm_context *context = recorded_context();
    REQUIRE(emm_defer_cleanup_begin(context) == EMM_OK);
    for (int i = 0; i < 20; ++i) {
        emm_memory *memory = nullptr;
        REQUIRE((i % 2 != 0
                     ? emm_memory_hostalloc(context, 4096, 0, &memory)
                     : emm_memory_managed(context, 4096, EMM_ATTACH_GLOBAL, &memory)) == EMM_OK);
        CHECK(emm_memory_release(memory) == EMM_OK);
    }
    CHECK(pending() == 20);
    CHECK(emm_defer_cleanup_end(context) == EMM_OK);
    CHECK(pending() == 0);
}

TEST_CASE("running out of host or managed memory drains, asks the application and tries again") {
    static size_t asked;
    Recorder::the().table.memhostalloc = [](emm_manager *, size_t, uint32_t, void **ret_host,
                                            emm_deviceptr *) -> emm_status {
        *ret_host = &asked;
        return asked != 0 ? EMM_OK : EMM_E_OUT_OF_HOST_MEMORY;
    };
    Recorder::the().table.memhostfree = [](emm_manager *, void *, size_t, uint32_t,
                                           emm_stream) -> emm_status { return EMM_OK; };
    Recorder::the().table.mempin = [](emm_manager *, void *, size_t, uint32_t,
                                      emm_deviceptr *) -> emm_status {
        return asked != 0 ? EMM_OK : EMM_E_OUT_OF_HOST_MEMORY;
    };
    Recorder::the().table.memunpin = [](emm_manager *, void *, size_t) -> emm_status {
        return EMM_OK;
    };
    Recorder::the().table.memallocmanaged = [](emm_manager *, size_t, uint32_t,
                                               emm_deviceptr *ret_ptr) -> emm_status {
        *ret_ptr = 0x1000;
        return asked != 0 ? EMM_OK : EMM_E_OUT_OF_MEMORY;
    };
    Recorder::the().table.memfreemanaged = [](emm_manager *, emm_deviceptr, size_t,
                                              emm_stream) -> emm_status { return EMM_OK; };
    emm_context *context = recorded_context();
    emm_set_pressure_callback([](emm_context *, size_t bytes, void *) { return asked = bytes; },
                              nullptr);
    void *host = nullptr;
    emm_deviceptr ptr = 0;
    CHECK(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
    CHECK(asked == 4096);
    asked = 0;
    CHECK(emm_mempin(context, &asked, 64, 0, nullptr) == EMM_OK);
    CHECK(asked == 64);
    asked = 0;
    CHECK(emm_memallocmanaged(context, 512, EMM_ATTACH_GLOBAL, &ptr) == EMM_OK);
    CHECK(asked == 512);
    CHECK(counters().memory_retries == 3);
    asked = 0;
    emm_set_pressure_callback(nullptr, nullptr);
    host = &ptr;
    CHECK(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_E_OUT_OF_HOST_MEMORY);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("out of host memory: 4096 bytes"));
    CHECK(host == &ptr);
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
    auto block = sized<emm_block_info>();
    size_t released = 7;
    CHECK(emm_query(context, 0x1000, &block) == EMM_E_NOT_SUPPORTED);
    CHECK(emm_record_use(context, 0x1000, 1, EMM_STREAM_LEGACY) == EMM_E_NOT_SUPPORTED);
    CHECK(emm_trim(context, 0, &released) == EMM_OK);
    CHECK(released == 0);
    CHECK(emm_stream_register(context, EMM_STREAM_PER_THREAD) == EMM_OK);
    CHECK(emm_stream_retire(context, EMM_STREAM_PER_THREAD) == EMM_OK);
}

TEST_CASE("peer access without a peer, or without a way to it, is refused in a sentence") {
    setenv("EMM_SIM", "devices=2,peer=0", 1);
    emm_context *context = recorded_context();
    for (const int32_t peer : {-1, 0, 101}) {
        CHECK(emm_set_peer_access(context, peer, EMM_ACCESS_READ_WRITE) == EMM_E_INVALID_VALUE);
        CHECK_THAT(emm_last_error()->text, ContainsSubstring("peer_device: expected 0 to ") &&
                                               ContainsSubstring("found " + std::to_string(peer)));
    }
    CHECK(emm_set_peer_access(context, 1, 2) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("(0, 1 or 3), found 2"));
}

TEST_CASE("peer access that the devices do not have is refused before the plugin is asked") {
    if (emm_context *context = recorded_beside_a_peer("devices=2,peer=0")) {
        CHECK(emm_set_peer_access(context, 1, EMM_ACCESS_READ) == EMM_E_NOT_SUPPORTED);
        CHECK_THAT(emm_last_error()->text,
                   ContainsSubstring("device 1 cannot reach the memory of device 0"));
        CHECK(Recorder::the().count("set_access") == 0);
        CHECK(emm_set_peer_access(context, 1, EMM_ACCESS_NONE) == EMM_OK);
        CHECK(Recorder::the().count("set_access") == 1);
    }
}

TEST_CASE("peer access that the devices have is the plugin's to give") {
    if (emm_context *context = recorded_beside_a_peer("devices=2,peer=1")) {
        CHECK(emm_set_peer_access(context, 1, EMM_ACCESS_READ) == EMM_OK);
        CHECK(Recorder::the().count("set_access") == 1);
    }
}

TEST_CASE("a reset that fails is described by the plugin, whatever the defaults meet behind it") {
    Recorder::the().table.reset = [](emm_manager *) {
        return Recorder::the().host->fail(EMM_E_PLUGIN_FAILED, 0, "the plugin cannot reset");
    };
    emm_context *context = recorded_context();
    void *host = nullptr;
    REQUIRE(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
    driver_will_fail("cuMemFreeHost@1:999"); // not on a real machine
    CHECK(emm_context_reset(context) == EMM_E_PLUGIN_FAILED);
    CHECK(emm_last_error()->code == EMM_E_PLUGIN_FAILED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("the plugin cannot reset"));
}

TEST_CASE("a plugin that keeps its peaks says so in a sentence") {
    emm_context *context = recorded_context();
    CHECK(emm_context_reset_peaks(context) == EMM_E_NOT_SUPPORTED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("does not reset its peaks"));
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
    CHECK(stats_of(context).host_live_bytes == 0);
}

TEST_CASE("a retirement waits for work only if portable pinned memory was given out") {
    emm_context *context = recorded_context();
    const CallCount calls = simulated_call_count();
    if (!calls) {
        return;
    }
    const uint64_t before = calls("cuMemHostAlloc"); // as waiting does
    REQUIRE(emm_context_retire(context) == EMM_OK);
    CHECK(calls("cuMemHostAlloc") == before);
    REQUIRE(emm_context_from(new_context(), &context) == EMM_OK);
    void *host = nullptr;
    REQUIRE(emm_memhostalloc(context, 64, EMM_HOST_PORTABLE, &host, nullptr) == EMM_OK);
    const uint64_t given = calls("cuMemHostAlloc");
    REQUIRE(emm_context_retire(context) == EMM_OK);
    CHECK(calls("cuMemHostAlloc") == given + 1);
}
