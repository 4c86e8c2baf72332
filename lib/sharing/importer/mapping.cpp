#include "sharing/importer/mapping.h"

#include "core/record/counters.h"
#include "observe/error.h"
#include "observe/log.h"

#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace emm::sharing {
namespace {

emm_status map_legacy(const driver::Driver &driver, const emm_ipc_handle &handle,
                      Mapping &mapping) {
    CUipcMemHandle name;
    std::memcpy(&name, handle.handle, sizeof name);
    const CUresult result =
        driver.cuIpcOpenMemHandle(&mapping.base, name, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    return result == CUDA_SUCCESS ? EMM_OK : fail_to_open(result, "cuIpcOpenMemHandle");
}

emm_status map_by_kind(const emm_context &context, const emm_ipc_handle &handle, Mapping &mapping) {
    switch (mapping.kind) {
    case EMM_IPC_FILE_DESCRIPTOR:
        return map_parts(context, handle, mapping);
    case EMM_IPC_POOL:
        return map_pooled(context, handle, mapping);
    default:
        return map_legacy(context.driver, handle, mapping);
    }
}

// cuMemUnmap and the free of a pool's allocation do not wait for work; cuIpcCloseMemHandle does.
CUresult unmap_by_kind(const driver::Driver &driver, Mapping &mapping) noexcept {
    if (mapping.kind == EMM_IPC_LEGACY) {
        return driver.cuIpcCloseMemHandle(mapping.base);
    }
    const CUresult result = driver.cuCtxSynchronize();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return mapping.kind == EMM_IPC_POOL ? unmap_pooled(driver, mapping)
                                        : unmap_parts(driver, mapping);
}

emm_status unmap_now(const emm_context &context, Mapping &mapping) noexcept {
    const bool is_legacy = mapping.kind == EMM_IPC_LEGACY;
    const driver::Current current(context.driver, context.cuda_context, context.id);
    const driver::RelaxedCapture relaxed(context.driver);
    CUresult result = current.result();
    result = result == CUDA_SUCCESS ? unmap_by_kind(context.driver, mapping) : result;
    if (driver::is_late(result)) {
        ++core::counters().late_frees;
        return EMM_OK;
    }
    return result == CUDA_SUCCESS
               ? EMM_OK
               : driver::fail(result, is_legacy ? "cuIpcCloseMemHandle" : "cuMemUnmap");
}

CUresult set_access(const driver::Driver &driver, const Mapping &mapping, int32_t device,
                    uint32_t flags) {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = static_cast<CUmemAccess_flags>(flags);
    return mapping.kind == EMM_IPC_POOL
               ? driver.cuMemPoolSetAccess(mapping.pool, &access, 1)
               : driver.cuMemSetAccess(mapping.base, mapping.size, &access, 1);
}

struct Pending {
    const emm_context &context;
    Mapping mapping;
};

emm_status run_pending(void *argument, uint32_t what) {
    const std::unique_ptr<Pending> pending(static_cast<Pending *>(argument));
    return what == EMM_DEFERRED_RUN ? unmap_now(pending->context, pending->mapping) : EMM_OK;
}

} // namespace

emm_status fail_to_open(CUresult result, const char *call) {
    if (result != CUDA_ERROR_ALREADY_MAPPED) {
        return driver::fail(result, call);
    }
    return observe::fail(EMM_E_BUSY, result,
                         "an export: its address is open here already, perhaps for memory that its "
                         "exporter has freed since; close that first");
}

emm_status map_export(const emm_context &context, const emm_ipc_handle &handle,
                      Mapping *ret_mapping) {
    const driver::Current current(context.driver, context.cuda_context, context.id);
    if (current.result() != CUDA_SUCCESS) {
        return driver::fail(current.result(), "making the context current");
    }
    const driver::RelaxedCapture relaxed(context.driver);
    Mapping mapping;
    mapping.kind = handle.kind;
    const emm_status status = map_by_kind(context, handle, mapping);
    if (status == EMM_OK) {
        *ret_mapping = std::move(mapping);
    }
    return status;
}

emm_status grant_access(const emm_context &context, const Mapping &mapping) {
    const CUresult result =
        set_access(context.driver, mapping, context.device, EMM_ACCESS_READ_WRITE);
    if (result != CUDA_SUCCESS) {
        return driver::fail(result,
                            mapping.kind == EMM_IPC_POOL ? "cuMemPoolSetAccess" : "cuMemSetAccess");
    }
    for (const auto &[device, flags] : context.announced.accesses()) {
        set_peer_access(context, mapping, device, flags);
    }
    return EMM_OK;
}

void set_peer_access(const emm_context &context, const Mapping &mapping, int32_t device,
                     uint32_t flags) {
    static_assert(EMM_ACCESS_READ == CU_MEM_ACCESS_FLAGS_PROT_READ &&
                  EMM_ACCESS_READ_WRITE == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (mapping.kind == EMM_IPC_LEGACY) {
        return;
    }
    const CUresult result = set_access(context.driver, mapping, device, flags);
    if (result != CUDA_SUCCESS) {
        observe::log(EMM_LOG_WARN,
                     "{}: device {} gets no access to what is opened of another "
                     "process at {:#x}: {}",
                     context, device, mapping.base, driver::name_of(result));
    }
}

emm_status measure(const emm_context &context, Mapping &mapping) {
    if (mapping.kind == EMM_IPC_FILE_DESCRIPTOR) {
        return EMM_OK;
    }
    const driver::Current current(context.driver, context.cuda_context, context.id);
    if (current.result() != CUDA_SUCCESS) {
        return driver::fail(current.result(), "making the context current");
    }
    CUdeviceptr start = 0;
    size_t size = 0;
    const CUresult result = context.driver.cuMemGetAddressRange(&start, &size, mapping.base);
    mapping.size = result == CUDA_SUCCESS ? size - (mapping.base - start) : 0;
    return result == CUDA_SUCCESS ? EMM_OK : driver::fail(result, "cuMemGetAddressRange");
}

emm_status unmap_export(emm_context &context, Mapping &mapping) noexcept {
    const emm_status status = unmap_now(context, mapping);
    if (status != EMM_E_CAPTURING) {
        return status;
    }
    std::unique_ptr<Pending> pending(new (std::nothrow) Pending{context, {}});
    if (!pending) {
        return status;
    }
    std::swap(pending->mapping, mapping);
    if (core::defer(context, &run_pending, pending.get(), pending->mapping.size) != EMM_OK) {
        std::swap(pending->mapping, mapping);
        return status;
    }
    pending.release();
    return EMM_OK;
}

} // namespace emm::sharing
