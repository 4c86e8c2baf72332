// Peer access: the access that the program allows between contexts reaches the plugin's memory as
// it reaches the driver's.
#include "server.h"

namespace emm::run {
namespace {

// The access to the memory of `context` from the calling thread's current context.
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

void peer_access_enabled(CUcontext peer, unsigned) {
    set_access_from_here(peer, EMM_ACCESS_READ_WRITE);
}

void peer_access_disabled(CUcontext peer) {
    set_access_from_here(peer, EMM_ACCESS_NONE);
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

// Waits first: work of the context may still reach the memory.
void Server::end_peer_access(CUcontext context) {
    if (!peers.holds_any(context)) {
        return;
    }
    contexts.wait_for_work_of(context);
    const std::lock_guard lock(peers.telling);
    tell(peers.end(context));
}

void serve_peers(Entries &entries) {
    watch<served_cuCtxEnablePeerAccess, &peer_access_enabled>(entries);
    watch<served_cuCtxDisablePeerAccess, &peer_access_disabled>(entries);
}

} // namespace emm::run
