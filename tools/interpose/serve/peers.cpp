// Peer access: what the program allows between contexts reaches the plugin's memory as it reaches
// the driver's.
#include "server.h"

namespace emm::run {
namespace {

// For the memory of `context`, from the calling thread's current context.
void set_access_from_here(CUcontext context, uint32_t access) {
    const Driver &driver = server().driver;
    CUcontext here = nullptr;
    CUdevice device = 0;
    emm_status status = EMM_OK;
    emm_context *const peer = server().contexts.of(context, status);
    if (peer && driver.cuCtxGetCurrent(&here) == CUDA_SUCCESS &&
        driver.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
        server().set_peer_access(peer, device, here, access);
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

void Server::tell(const std::vector<DeviceAccess> &changed) {
    for (const DeviceAccess &each : changed) {
        emm_set_peer_access(each.memory, each.device, each.access);
    }
}

void Server::set_peer_access(emm_context *memory, CUdevice device, CUcontext by, uint32_t access) {
    const std::lock_guard lock(peers.telling);
    tell(peers.set(memory, device, by, access));
}

// Its work may still reach the memory.
void Server::end_peer_access(CUcontext context) {
    if (!peers.holds_any(context)) {
        return;
    }
    const Current current(driver, context);
    if (current.result() == CUDA_SUCCESS) {
        driver.cuCtxSynchronize();
    }
    const std::lock_guard lock(peers.telling);
    tell(peers.end(context));
}

void serve_peers(Entries &entries) {
    entries.at[served_cuCtxEnablePeerAccess] = entry_of<&enable_peer_access>();
    entries.at[served_cuCtxDisablePeerAccess] = entry_of<&disable_peer_access>();
}

} // namespace emm::run
