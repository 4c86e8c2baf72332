// Peer access: what the program allows between contexts reaches the plugin's memory as it reaches
// the driver's.
#include "server.h"

namespace emm::run {
namespace {

// For the memory of `context`, from the device of the calling thread's current context. A plugin
// that cannot do it has memory of cuMemAlloc, which the driver's own call covers.
void set_access_from_here(CUcontext context, uint32_t access) {
    CUdevice here = 0;
    emm_status status = EMM_OK;
    emm_context *const peer = server().contexts.of(context, status);
    if (peer && server().driver.cuCtxGetDevice(&here) == CUDA_SUCCESS) {
        emm_set_peer_access(peer, here, access);
    }
}

CUresult enable_peer_access(CUcontext peer, unsigned flags) {
    const Turn turn;
    const CUresult result =
        ask_driver<&enable_peer_access>(served_cuCtxEnablePeerAccess, peer, flags);
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        set_access_from_here(peer, EMM_ACCESS_READ_WRITE);
    }
    return result;
}

CUresult disable_peer_access(CUcontext peer) {
    const Turn turn;
    const CUresult result = ask_driver<&disable_peer_access>(served_cuCtxDisablePeerAccess, peer);
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        set_access_from_here(peer, EMM_ACCESS_NONE);
    }
    return result;
}

} // namespace

void serve_peers(Entries &entries) {
    entries.at[served_cuCtxEnablePeerAccess] = entry_of<&enable_peer_access>();
    entries.at[served_cuCtxDisablePeerAccess] = entry_of<&disable_peer_access>();
}

} // namespace emm::run
