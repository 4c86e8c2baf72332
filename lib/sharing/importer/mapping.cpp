#include "sharing/importer/mapping.h"

#include "observe/error.h"
#include "observe/log.h"

#include <cstring>
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

CUresult unmap_by_kind(const driver::Driver &driver, Mapping &mapping) noexcept {
    switch (mapping.kind) {
    case EMM_IPC_FILE_DESCRIPTOR:
        return unmap_parts(driver, mapping);
    case EMM_IPC_POOL:
        return unmap_pooled(driver, mapping);
    default:
        return driver.cuIpcCloseMemHandle(mapping.base);
    }
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

} // namespace

emm_status fail_to_open(CUresult result, const char *call) {
    if (result != CUDA_ERROR_ALREADY_MAPPED) {
        return driver::fail(result, call);
    }
    return observe::fail(
        EMM_E_BUSY, result,
        "an export: its address is still open here, perhaps for freed memory; close that first");
}

emm_status map_export(const emm_context &context, const emm_ipc_handle &handle,
                      Mapping *ret_mapping) {
    const driver::Current current(context.driver, context.cuda_context, context.id);
    EMM_TRY(current.status());
    const driver::RelaxedCapture relaxed(context.driver);
    Mapping mapping;
    mapping.kind = handle.kind;
    EMM_TRY(map_by_kind(context, handle, mapping));
    *ret_mapping = std::move(mapping);
    return EMM_OK;
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
                     "{}: device {} gets no access to another process's memory at {:#x}: {}",
                     context, device, mapping.base, driver::name_of(result));
    }
}

emm_status measure(const emm_context &context, Mapping &mapping) {
    if (mapping.kind == EMM_IPC_FILE_DESCRIPTOR) {
        return EMM_OK;
    }
    const driver::Current current(context.driver, context.cuda_context, context.id);
    EMM_TRY(current.status());
    CUdeviceptr start = 0;
    size_t size = 0;
    const CUresult result = context.driver.cuMemGetAddressRange(&start, &size, mapping.base);
    mapping.size = result == CUDA_SUCCESS ? size - (mapping.base - start) : 0;
    return driver::check(result, "cuMemGetAddressRange");
}

// As far as is known, no driver call for unmapping waits for work. Physical memory and pools are
// the device's: they stay open when the context has died, and nothing uses them then.
emm_status unmap_export(const emm_context &context, Mapping &mapping) noexcept {
    const driver::Current current(context.driver, context.cuda_context, context.id);
    const driver::RelaxedCapture relaxed(context.driver);
    CUresult result = current.result();
    if (driver::is_late(result) && mapping.kind != EMM_IPC_LEGACY) {
        result = unmap_by_kind(context.driver, mapping);
    } else if (result == CUDA_SUCCESS) {
        result = driver::wait_for_work(context.driver);
        result = result == CUDA_SUCCESS ? unmap_by_kind(context.driver, mapping) : result;
    }
    if (driver::is_late(result)) {
        ++core::counters().late_frees;
        return EMM_OK;
    }
    return driver::check(result, "unmapping an export");
}

} // namespace emm::sharing
