#include "core/ipc/staged.h"

#include "core/ipc/devices.h"
#include "core/ipc/imports.h"
#include "observe/error.h"

namespace emm::core::ipc {
namespace {

// The driver takes the way through host memory where there is no other.
emm_status copy(const emm_context &to, emm_deviceptr target, const emm_context &from,
                emm_deviceptr source, size_t size, bool *ret_ended) noexcept {
    const driver::Driver &driver = to.driver;
    const driver::Current current(driver, to.cuda_context, to.id);
    if (current.result() != CUDA_SUCCESS) {
        return driver::fail(current.result(), "making the context current");
    }
    const driver::RelaxedCapture relaxed(driver);
    CUresult result = driver.cuMemcpyPeer(target, to.cuda_context, source, from.cuda_context, size);
    if (result != CUDA_SUCCESS) {
        return driver::fail(result, "cuMemcpyPeer");
    }
    result = driver.cuStreamSynchronize(CU_STREAM_LEGACY);
    if (result != CUDA_SUCCESS) {
        // Until the copy has ended, what it reads must stay.
        *ret_ended = driver.cuCtxSynchronize() == CUDA_SUCCESS;
        return driver::fail(result, "cuStreamSynchronize");
    }
    return EMM_OK;
}

emm_status open_copy_from(emm_context &source, emm_context &context, const emm_ipc_handle &handle,
                          emm_memory **ret_memory, const void *caller) {
    Import *import = nullptr;
    emm_deviceptr base = 0;
    emm_status status = open_import(source, handle, &import, &base);
    if (status != EMM_OK) {
        return status;
    }
    bool ended = true;
    emm_memory *memory = nullptr;
    status = make_device(context, handle.size, EMM_STREAM_UNORDERED, &memory, caller);
    if (status >= EMM_OK) {
        const emm_status copied =
            copy(context, memory->ptr, source, base + handle.offset, handle.size, &ended);
        status = copied == EMM_OK ? status : copied;
    }
    const observe::Preserved said;
    if (ended) {
        close_import(*import);
    } // else it is closed at the end of its context
    if (status < EMM_OK) {
        if (memory) {
            release(*memory, caller);
        }
        return status;
    }
    *ret_memory = memory;
    return status;
}

} // namespace

emm_status open_copy(emm_context &context, int32_t device, const emm_ipc_handle &handle,
                     emm_memory **ret_memory, const void *caller) noexcept {
    try {
        emm_context *source = nullptr;
        const emm_status status = context_to_copy_from(context.driver, device, &source);
        return status == EMM_OK ? open_copy_from(*source, context, handle, ret_memory, caller)
                                : status;
    } catch (const std::bad_alloc &) {
        return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no memory to open an export");
    }
}

} // namespace emm::core::ipc
