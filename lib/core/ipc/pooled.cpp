#include "core/ipc/pooled.h"

#include "core/ipc/connection.h"
#include "observe/error.h"

#include <cstring>
#include <unistd.h>
#include <utility>

namespace emm::core::ipc {
namespace {

emm_status fetch_descriptor(const emm_ipc_handle &handle, int *ret_descriptor) {
    Connection connection(handle, 1);
    emm_status status = connection.open();
    Reply reply = {};
    int descriptors[parts_at_once];
    status = status == EMM_OK ? connection.ask(0, &reply, descriptors) : status;
    if (status == EMM_OK) {
        *ret_descriptor = descriptors[0];
    }
    return status;
}

emm_status grant_access(const emm_context &context, CUmemoryPool pool) {
    CUmemAccessDesc own = {};
    own.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    own.location.id = context.device;
    own.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUresult result = context.driver.cuMemPoolSetAccess(pool, &own, 1);
    return result == CUDA_SUCCESS ? EMM_OK : driver::fail(result, "cuMemPoolSetAccess");
}

emm_status import_pool(const emm_context &context, int descriptor, CUmemoryPool *ret_pool) {
    const CUresult result = context.driver.cuMemPoolImportFromShareableHandle(
        ret_pool, reinterpret_cast<void *>(static_cast<intptr_t>(descriptor)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return result == CUDA_SUCCESS ? EMM_OK
                                  : driver::fail(result, "cuMemPoolImportFromShareableHandle");
}

emm_status import_pointer(const emm_context &context, const emm_ipc_handle &handle,
                          Mapping &mapping) {
    CUmemPoolPtrExportData name;
    static_assert(sizeof name == sizeof handle.handle);
    std::memcpy(&name, handle.handle, sizeof name);
    const CUresult result =
        context.driver.cuMemPoolImportPointer(&mapping.base, mapping.pool, &name);
    return result == CUDA_SUCCESS ? EMM_OK : driver::fail(result, "cuMemPoolImportPointer");
}

} // namespace

emm_status map_pooled(const emm_context &context, const emm_ipc_handle &handle,
                      Mapping *ret_mapping) {
    int descriptor = -1;
    emm_status status = fetch_descriptor(handle, &descriptor);
    if (status != EMM_OK) {
        return status;
    }
    const driver::Current current(context.driver, context.cuda_context, context.id);
    if (current.result() != CUDA_SUCCESS) {
        close(descriptor);
        return driver::fail(current.result(), "making the context current");
    }
    const driver::RelaxedCapture relaxed(context.driver);
    Mapping mapping;
    status = import_pool(context, descriptor, &mapping.pool);
    close(descriptor);
    if (status != EMM_OK) {
        return status;
    }
    status = grant_access(context, mapping.pool);
    status = status == EMM_OK ? import_pointer(context, handle, mapping) : status;
    if (status != EMM_OK) {
        context.driver.cuMemPoolDestroy(mapping.pool);
        return status;
    }
    *ret_mapping = std::move(mapping);
    return EMM_OK;
}

} // namespace emm::core::ipc
