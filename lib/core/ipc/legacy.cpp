#include "core/ipc/exports.h"
#include "observe/error.h"

#include <cstring>
#include <string>

namespace emm::core::ipc {

// A CUDA handle names the whole block of cuMemAlloc: the offset has to travel beside it.
emm_status get_legacy_handle(emm_context &context, emm_deviceptr ptr, size_t size,
                             emm_ipc_handle *ret_handle) {
    const driver::Driver &driver = context.driver;
    const driver::Current current(driver, context.cuda_context, context.id);
    if (current.result() != CUDA_SUCCESS) {
        return driver::fail(current.result(), "making the context current");
    }
    const driver::RelaxedCapture relaxed(driver);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult result = driver.cuMemGetAddressRange(&base, &bytes, ptr);
    if (result != CUDA_SUCCESS) {
        return driver::fail(result, "cuMemGetAddressRange");
    }
    if (size > bytes - (ptr - base)) {
        return observe::fail(EMM_E_INVALID_VALUE, 0,
                             "an export's size: expected at most the " +
                                 std::to_string(bytes - (ptr - base)) +
                                 " bytes that its block has left, found " + std::to_string(size));
    }
    CUipcMemHandle handle;
    result = driver.cuIpcGetMemHandle(&handle, base);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return observe::fail(EMM_E_NOT_SUPPORTED, result,
                             "cuIpcGetMemHandle takes only memory of cuMemAlloc, and this is not; "
                             "a plugin that allocates so (passthrough, or pool) could export it");
    }
    if (result != CUDA_SUCCESS) {
        return driver::fail(result, "cuIpcGetMemHandle");
    }
    emm_ipc_handle made = {};
    made.kind = EMM_IPC_LEGACY;
    std::memcpy(made.handle, &handle, sizeof made.handle);
    made.offset = ptr - base;
    made.size = size;
    made.exported_size = bytes;
    *ret_handle = made;
    return EMM_OK;
}

} // namespace emm::core::ipc
