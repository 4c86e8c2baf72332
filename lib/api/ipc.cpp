#include "api/check.h"
#include "core/handles/handle.h"
#include "sharing/exporter/exporter.h"
#include "sharing/handle/stamp.h"
#include "sharing/importer/connection.h"
#include "sharing/importer/importer.h"

using namespace emm;

emm_status emm_memory_export(emm_memory *memory, emm_ipc_handle *ret_handle) {
    EMM_ENTER(memory, ret_handle);
    const core::Uncancelled uncancelled;
    return sharing::export_memory(*memory, ret_handle);
}

emm_status emm_memory_open_ipc(emm_context *context, const emm_ipc_handle *handle,
                               emm_memory **ret_memory) {
    EMM_ENTER(context, handle, ret_memory);
    const emm_ipc_handle copy = *handle; // shared memory could change between check and use
    const core::Uncancelled uncancelled;
    return sharing::open_handle(*context, copy, ret_memory, __builtin_return_address(0));
}

emm_status emm_get_ipc_handle(emm_context *context, emm_deviceptr ptr, size_t size,
                              emm_ipc_handle *ret_handle) {
    EMM_ENTER(context, ptr, size, ret_handle);
    const core::Uncancelled uncancelled;
    EMM_TRY(core::admit(*context));
    return sharing::get_handle(*context, nullptr, ptr, size, ret_handle);
}

emm_status emm_release_ipc_handle(emm_context *context, const emm_ipc_handle *handle) {
    EMM_ENTER(context, handle);
    const core::Uncancelled uncancelled;
    emm_status status = EMM_OK;
    return core::is_late(*context, &status) ? status : sharing::release_handle(*context, *handle);
}

int emm_ipc_is_name(const void *bytes) {
    return bytes && sharing::is_name(bytes);
}

emm_status emm_ipc_handle_to_name(const emm_ipc_handle *handle, emm_ipc_name *ret_name) {
    EMM_COUNT_CALL();
    EMM_REQUIRE(handle, ret_name);
    const emm_ipc_handle copy = *handle;
    return api::guarded([&]() -> emm_status {
        EMM_TRY(sharing::check_handle(copy));
        *ret_name = sharing::write_name(copy);
        return EMM_OK;
    });
}

emm_status emm_ipc_name_to_handle(const emm_ipc_name *name, emm_ipc_handle *ret_handle) {
    EMM_COUNT_CALL();
    EMM_REQUIRE(name, ret_handle);
    const emm_ipc_name copy = *name;
    return api::guarded([&] { return sharing::find_handle(copy, ret_handle); });
}

emm_status emm_ipc_name_of(const emm_ipc_handle *handle, emm_ipc_name *ret_name) {
    return emm_ipc_handle_to_name(handle, ret_name);
}

emm_status emm_ipc_handle_from(const emm_ipc_name *name, emm_ipc_handle *ret_handle) {
    return emm_ipc_name_to_handle(name, ret_handle);
}
