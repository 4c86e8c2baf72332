#include "core/memory/call.h"
#include "observe/error.h"
#include "sharing/exporter/exports.h"

#include <cstdio>
#include <cstring>
#include <string>

namespace emm::sharing {
namespace {

emm_status check_size(size_t size, uint64_t left, const char *whose) {
    if (size <= left) {
        return EMM_OK;
    }
    return observe::refuse(
        "an export's size: expected at most the {} bytes that its {} has left, found {}", left,
        whose, size);
}

// The driver knows every block in the process, freed and pending ones too; which of them are live
// and the plugin's, only a plugin with a `query` can say.
emm_status check_owned(emm_context &context, emm_deviceptr ptr, size_t size) {
    if (context.selection->plugin->defaults(loader::Slot::query)) {
        return EMM_OK;
    }
    emm_block_info info = {};
    info.struct_size = sizeof info;
    EMM_TRY(EMM_CALL(context, query, ptr, &info));
    return check_size(size, info.base + info.size - ptr, "allocation");
}

emm_status fail_to_find(CUresult result, emm_deviceptr ptr) {
    if (result != CUDA_ERROR_NOT_FOUND && result != CUDA_ERROR_INVALID_VALUE) {
        return driver::fail(result, "cuMemGetAddressRange");
    }
    return observe::fail(EMM_E_NOT_OWNED, result,
                         "an export: {:#x} lies in no device memory of this context", ptr);
}

} // namespace

// A CUDA handle names the whole block of cuMemAlloc: the offset has to travel beside it.
emm_status get_legacy_handle(emm_context &context, emm_deviceptr ptr, size_t size,
                             emm_ipc_handle *ret_handle) {
    EMM_TRY(check_owned(context, ptr, size));
    const driver::Driver &driver = context.driver;
    const driver::Current current(driver, context.cuda_context, context.id);
    EMM_TRY(current.status());
    const driver::RelaxedCapture relaxed(driver);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult result = driver.cuMemGetAddressRange(&base, &bytes, ptr);
    if (result != CUDA_SUCCESS) {
        return fail_to_find(result, ptr);
    }
    EMM_TRY(check_size(size, bytes - (ptr - base), "block"));
    CUipcMemHandle handle;
    result = driver.cuIpcGetMemHandle(&handle, base);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return observe::fail(EMM_E_NOT_SUPPORTED, result,
                             "cuIpcGetMemHandle takes only memory of cuMemAlloc, and this is not; "
                             "a plugin that allocates so (passthrough, or pool) could export it");
    }
    EMM_TRY(driver::check(result, "cuIpcGetMemHandle"));
    emm_ipc_handle made = {};
    made.kind = EMM_IPC_LEGACY;
    std::memcpy(made.handle, &handle, sizeof made.handle);
    made.offset = ptr - base;
    made.size = size;
    made.exported_size = bytes;
    *ret_handle = made;
    return EMM_OK;
}

} // namespace emm::sharing
