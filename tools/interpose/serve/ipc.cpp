// Memory between processes: the 64 bytes of a handle name an export of emm's, so that memory of any
// plugin can be shared, and the importer gets the allocation's own address. Bytes without such a
// name came from a process without emm, and go to the driver.
#include "server.h"

#include <cstring>

namespace emm::run {
namespace {

// If emm refuses an export, the driver must not export either: its handle would be for all of the
// segment, and the importer would take the segment's address for the allocation's.
Answer ipc_get_mem_handle(CUipcMemHandle *ret_handle, CUdeviceptr ptr) {
    const Allocation found = ret_handle ? server().own_around(ptr) : Allocation();
    if (found.freed) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (found.address == 0) {
        return {};
    }
    emm_ipc_name name = {};
    const emm_status status = server().sharing.export_memory(found, name);
    if (status < 0) {
        return status == EMM_E_NOT_SUPPORTED ? CUDA_ERROR_INVALID_VALUE : result_of(status);
    }
    static_assert(sizeof name == sizeof *ret_handle);
    std::memcpy(ret_handle, &name, sizeof name);
    return CUDA_SUCCESS;
}

void opened(CUdeviceptr *ret_ptr, CUipcMemHandle, unsigned) {
    server().driver_gave(*ret_ptr);
}

Answer ipc_open_mem_handle(CUdeviceptr *ret_ptr, CUipcMemHandle handle, unsigned flags) {
    if (!ret_ptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || !emm_ipc_is_name(&handle)) {
        return {};
    }
    emm_ipc_name name = {};
    std::memcpy(&name, &handle, sizeof name);
    const Answer answer = in_current(
        [&](emm_context *context) { return server().sharing.open(context, name, ret_ptr); });
    if (answer && *answer == CUDA_SUCCESS) {
        opened(ret_ptr, handle, flags);
    }
    return answer;
}

Answer ipc_close_mem_handle(CUdeviceptr ptr) {
    CUresult result = CUDA_SUCCESS;
    emm_status status = EMM_OK;
    return server().sharing.has_imports() &&
                   server().sharing.close(server().contexts.current(status), ptr, result)
               ? result
               : Answer();
}

} // namespace

void serve_ipc(Entries &entries) {
    serve<served_cuIpcGetMemHandle, &ipc_get_mem_handle>(entries);
    serve<served_cuIpcOpenMemHandle, &ipc_open_mem_handle, &opened>(entries);
    serve<served_cuIpcOpenMemHandle_v2, &ipc_open_mem_handle, &opened>(entries);
    serve<served_cuIpcCloseMemHandle, &ipc_close_mem_handle>(entries);
}

} // namespace emm::run
