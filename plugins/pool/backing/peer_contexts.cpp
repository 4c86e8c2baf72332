#include "peer_contexts.h"

#include <algorithm>

namespace emm::pool {

PeerContexts::~PeerContexts() {
    for (const int32_t device : devices_) {
        driver_.cuDevicePrimaryCtxRelease(device);
    }
}

emm_status PeerContexts::set_access(int32_t device, bool on) {
    std::list<int32_t> listed{device}; // made first, so that nothing can fail afterwards
    CUcontext peer = nullptr;
    CUresult result = driver_.cuDevicePrimaryCtxRetain(&peer, device);
    if (result != CUDA_SUCCESS) {
        return context_.failed(result, "cuDevicePrimaryCtxRetain");
    }
    result = switch_access(peer, on);
    keep(std::move(listed), on, result);
    return result == CUDA_SUCCESS ? EMM_OK : context_.failed(result, "cuCtxEnablePeerAccess");
}

CUresult PeerContexts::switch_access(CUcontext peer, bool on) {
    unsigned long long id = 0;
    CUresult result = driver_.cuCtxGetId(peer, &id);
    const Current current(driver_, peer, id);
    result = result == CUDA_SUCCESS ? current.result() : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = on ? driver_.cuCtxEnablePeerAccess(context_.handle, 0)
                : driver_.cuCtxDisablePeerAccess(context_.handle);
    const bool was_so = result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ||
                        result == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    return was_so ? CUDA_SUCCESS : result;
}

// Each peer that has access keeps one reference on its primary context.
void PeerContexts::keep(std::list<int32_t> listed, bool on, CUresult result) {
    const int32_t device = listed.front();
    int releases = 1;
    if (result == CUDA_SUCCESS) {
        const Lock lock(context_.mutex);
        const auto known = std::find(devices_.begin(), devices_.end(), device);
        if (on && known == devices_.end()) {
            devices_.splice(devices_.end(), listed);
            releases = 0;
        } else if (!on && known != devices_.end()) {
            devices_.erase(known);
            releases = 2;
        }
    }
    while (releases-- > 0) {
        driver_.cuDevicePrimaryCtxRelease(device);
    }
}

} // namespace emm::pool
