#include "../../core/driver_calls.h"
#include "../../core/recorder.h"

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
