// Memory between processes: the 64 bytes of a handle name an export of emm's, so that memory of any
// plugin can be shared; the importer gets the allocation's own address. Bytes that are no name came
// from a process without emm, and are the driver's.
#include "server.h"

#include <cstring>

namespace emm::run {
namespace {

// What emm does not export the driver must not either: it would hand out all of the segment, and
// the importer would take the segment's address for the allocation's.
CUresult ipc_get_mem_handle(CUipcMemHandle *ret_handle, CUdeviceptr ptr) {
    const Turn turn;
    const Allocation found =
        turn.is_programs() && ret_handle ? server().own_around(ptr) : Allocation();
    if (found.freed) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (found.address == 0) {
        return ask_driver<&ipc_get_mem_handle>(served_cuIpcGetMemHandle, ret_handle, ptr);
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

template <Served entry>
CUresult ipc_open_mem_handle(CUdeviceptr *ret_ptr, CUipcMemHandle handle, unsigned flags) {
    const Turn turn;
    Answer answer;
    if (turn.is_programs() && ret_ptr && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS &&
        emm_ipc_is_name(&handle)) {
        emm_ipc_name name = {};
        std::memcpy(&name, &handle, sizeof name);
        answer = in_current(
            [&](emm_context *context) { return server().sharing.open(context, name, ret_ptr); });
    }
    const CUresult result =
        answer ? *answer : ask_driver<&ipc_open_mem_handle<entry>>(entry, ret_ptr, handle, flags);
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        server().driver_gave(*ret_ptr);
    }
    return result;
}

CUresult ipc_close_mem_handle(CUdeviceptr ptr) {
    const Turn turn;
    CUresult result = CUDA_SUCCESS;
    emm_status status = EMM_OK;
    if (turn.is_programs() && server().sharing.has_imports() &&
        server().sharing.close(server().contexts.current(status), ptr, result)) {
        return result;
    }
    return ask_driver<&ipc_close_mem_handle>(served_cuIpcCloseMemHandle, ptr);
}

} // namespace

void serve_ipc(Entries &entries) {
    entries.at[served_cuIpcGetMemHandle] = entry_of<&ipc_get_mem_handle>();
    entries.at[served_cuIpcOpenMemHandle] =
        entry_of<&ipc_open_mem_handle<served_cuIpcOpenMemHandle>>();
    entries.at[served_cuIpcOpenMemHandle_v2] =
        entry_of<&ipc_open_mem_handle<served_cuIpcOpenMemHandle_v2>>();
    entries.at[served_cuIpcCloseMemHandle] = entry_of<&ipc_close_mem_handle>();
}

} // namespace emm::run
