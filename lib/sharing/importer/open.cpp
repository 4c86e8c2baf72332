#include "sharing/importer/open.h"

#include "core/handles/handle.h"
#include "core/record/context.h"
#include "observe/error.h"
#include "sharing/handle/stamp.h"
#include "sharing/importer/connection.h"
#include "sharing/importer/devices.h"
#include "sharing/importer/imports.h"

#include <new>

namespace emm::sharing {
namespace {

// The driver takes the way through host memory where there is no other.
emm_status copy(const emm_context &to, emm_deviceptr target, const emm_context &from,
                emm_deviceptr source, size_t size, bool *ret_ended) noexcept {
    const driver::Driver &driver = to.driver;
    const driver::Current current(driver, to.cuda_context, to.id);
    EMM_TRY(current.status());
    const driver::RelaxedCapture relaxed(driver);
    EMM_TRY(EMM_DRIVER_CALL(driver, cuMemcpyPeer, target, to.cuda_context, source,
                            from.cuda_context, size));
    CUresult result = driver.cuStreamSynchronize(CU_STREAM_LEGACY);
    if (result != CUDA_SUCCESS) {
        // Until the copy has ended, what it reads must stay.
        *ret_ended = driver.cuCtxSynchronize() == CUDA_SUCCESS;
        return driver::fail(result, "cuStreamSynchronize");
    }
    return EMM_OK;
}

// What lies on a device whose memory the context cannot use: a copy in memory of the context's own
// manager. It is the caller's, and has nothing to do with the export any more.
emm_status open_copy(emm_context &source, emm_context &context, const emm_ipc_handle &handle,
                     emm_memory **ret_memory, const void *caller) {
    core::Import *import = nullptr;
    emm_deviceptr base = 0;
    EMM_TRY(open_import(source, handle, &import, &base));
    bool ended = true;
    emm_memory *memory = nullptr;
    emm_status status =
        core::make_device(context, handle.size, EMM_STREAM_UNORDERED, &memory, caller);
    if (status >= EMM_OK) {
        const emm_status copied =
            copy(context, memory->ptr, source, base + handle.offset, handle.size, &ended);
        status = copied == EMM_OK ? status : copied;
    }
    const observe::Preserved said;
    if (ended) {
        import->close();
    } // else it is closed at the end of its context
    if (status < EMM_OK) {
        if (memory) {
            core::release(*memory, caller);
        }
        return status;
    }
    *ret_memory = memory;
    return status;
}

emm_status open_on(emm_context &context, int32_t device, const emm_ipc_handle &handle,
                   emm_memory **ret_memory, const void *caller) {
    emm_context *source = nullptr;
    EMM_TRY(context_to_copy_from(context.driver, device, &source));
    return open_copy(*source, context, handle, ret_memory, caller);
}

emm_status open_here(emm_memory &made, const emm_ipc_handle &handle) {
    emm_deviceptr base = 0;
    const emm_status status = open_import(*made.context, handle, &made.import, &base);
    made.ptr = base + handle.offset;
    return status;
}

emm_status check_and_open(emm_context &context, const emm_ipc_handle &handle,
                          emm_memory **ret_memory, const void *caller) {
    int32_t device = context.device;
    bool reachable = true;
    EMM_TRY(core::admit_or_wait(context));
    EMM_TRY(check_stamp(handle));
    EMM_TRY(find_device(context, handle, &device));
    EMM_TRY(check_liveness(handle));
    if (device != context.device) {
        EMM_TRY(can_reach(context.driver, context.device, device, &reachable));
    }
    return reachable ? core::make_import(context, handle, &open_here, ret_memory)
                     : open_on(context, device, handle, ret_memory, caller);
}

} // namespace

emm_status open_handle(emm_context &context, const emm_ipc_handle &handle, emm_memory **ret_memory,
                       const void *caller) noexcept {
    return observe::with_memory("no memory to open an export", [&] {
        return check_and_open(context, handle, ret_memory, caller);
    });
}

} // namespace emm::sharing
