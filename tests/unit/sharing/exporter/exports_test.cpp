#include "../../core/driver_calls.h"
#include "../../core/host_memory.h"
#include "../../core/recorder.h"
#include "sharing/exporter/exporter.h"
#include "sharing/handle/stamp.h"

#include <array>

namespace {

emm_status get_ipc_handle(emm_manager *, emm_deviceptr, size_t size, emm_ipc_handle *ret_handle) {
    ret_handle->kind = EMM_IPC_LEGACY;
    ret_handle->size = ret_handle->exported_size = size;
    return EMM_OK;
}

// The plugin is asked for a second time.
emm_status refuse_once(emm_manager *, const emm_ipc_handle *) {
    Recorder::the().note("release_ipc_handle");
    return Recorder::the().count("release_ipc_handle") == 1 ? EMM_E_DRIVER : EMM_OK;
}

#if EMM_TEST_FAILS_ALLOCATIONS
CUdeviceptr block = 0;

emm_status allocate_block(emm_manager *, size_t, emm_stream, emm_deviceptr *ret_ptr) {
    *ret_ptr = block;
    return EMM_OK;
}

emm_status serve(emm_manager *, emm_deviceptr, size_t size, emm_ipc_handle *ret_handle) {
    const emm_ipc_part part = {1, size};
    auto source = sized<emm_ipc_source>();
    source.kind = EMM_IPC_FILE_DESCRIPTOR;
    source.parts = &part;
    source.part_count = 1;
    source.size = size;
    return Recorder::the().host->serve_ipc(Recorder::the().context, &source, ret_handle);
}

emm_status withdraw(emm_manager *, const emm_ipc_handle *handle) {
    return Recorder::the().host->withdraw_ipc(Recorder::the().context, handle);
}
#endif

} // namespace

TEST_CASE("an export that the plugin refuses to release can be released again, and then no more") {
    Recorder::the().table.get_ipc_handle = &get_ipc_handle;
    Recorder::the().table.release_ipc_handle = &refuse_once;
    emm_context *const context = recorded_context();
    new_context();
    CUdeviceptr ptr = 0;
    REQUIRE(CU(cuMemAlloc)(&ptr, 64) == CUDA_SUCCESS);
    emm_ipc_handle handle = {};
    const emm_status status = emm_get_ipc_handle(context, ptr, 64, &handle);
    INFO(emm_last_error()->text);
    REQUIRE(status == EMM_OK);
    CHECK(emm_release_ipc_handle(context, &handle) == EMM_E_DRIVER);
    CHECK(emm_release_ipc_handle(context, &handle) == EMM_OK);
    CHECK(emm_release_ipc_handle(context, &handle) == EMM_E_NOT_OWNED);
    CHECK(Recorder::the().count("release_ipc_handle") == 2);
}

#if EMM_TEST_FAILS_ALLOCATIONS
TEST_CASE("an export is found among many without a look at each") {
    Recorder::the().table.memalloc = &allocate_block;
    Recorder::the().table.get_ipc_handle = &serve;
    Recorder::the().table.release_ipc_handle = &withdraw;
    emm_context *const context = recorded_context();
    new_context();
    REQUIRE(CU(cuMemAlloc)(&block, 64) == CUDA_SUCCESS);
    std::array<emm_memory *, 1000> memories = {};
    std::array<emm_ipc_handle, 1000> handles = {};
    emm_ipc_handle raw = {}, found = {};
    REQUIRE(emm::sharing::start_serving() == EMM_OK);
    for (size_t i = 0; i < memories.size(); ++i) {
        REQUIRE(emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &memories[i]) == EMM_OK);
        has_pages = true;
        const emm_status status = emm_memory_export(memories[i], &handles[i]);
        has_pages = false;
        INFO(emm_last_error()->text);
        REQUIRE(status == EMM_OK);
    }
    const emm_ipc_name name = emm::sharing::write_name(handles[500]);
    constexpr size_t few = 100; // two nodes of each level of three trees, and more
    const auto looks_of = [](const auto &code) {
        bool done = false;
        const size_t looks = pages_touched([&] { done = code(); });
        CHECK(done);
        return looks;
    };
    CHECK(looks_of([&] { return emm_get_ipc_handle(context, block, 64, &raw) == EMM_OK; }) < few);
    CHECK(looks_of([&] { return emm_memory_export(memories[500], &found) == EMM_OK; }) < few);
    CHECK(found.generation == handles[500].generation);
    CHECK(looks_of([&] { return emm::sharing::find_export(name, &found); }) < few);
    for (const emm_ipc_handle &handle : {handles[500], handles[500], raw, handles[999]}) {
        CHECK(looks_of([&] { return emm_release_ipc_handle(context, &handle) == EMM_OK; }) < few);
    }
}
#endif
