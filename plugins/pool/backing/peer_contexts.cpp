#include "peer_contexts.h"

#include <cstddef>
#include <mutex>
#include <new>

namespace emm::pool {
namespace {

struct Access {
    uint32_t managers = 0;     // those that have let the peer in
    bool is_pools_own = false; // not enabled by the program
};

// All managers of this process share this. The key: the id of the context, and the peer.
struct Accesses {
    std::mutex mutex; // held for as long as a call of set_access takes
    std::map<std::pair<uint64_t, int32_t>, Access> by_pair;
};

// Never destroyed: managers are not, when a process ends. Takes no host memory.
Accesses &accesses() noexcept {
    alignas(Accesses) static std::byte place[sizeof(Accesses)];
    static Accesses *const made = new (place) Accesses;
    return *made;
}

} // namespace

PeerContexts::~PeerContexts() {
    const std::lock_guard lock(accesses().mutex);
    while (!peers_.empty()) {
        disable(peers_.begin());
        leave(peers_.begin());
    }
}

emm_status PeerContexts::set_access(int32_t device, bool on) {
    const std::lock_guard lock(accesses().mutex);
    if (on) {
        const CUresult result = enter(device);
        return result == CUDA_SUCCESS ? EMM_OK : context_.failed(result, "cuCtxEnablePeerAccess");
    }
    const auto peer = peers_.find(device);
    const CUresult result = peer == peers_.end() ? CUDA_SUCCESS : disable(peer);
    if (result != CUDA_SUCCESS) {
        return context_.failed(result, "cuCtxDisablePeerAccess");
    }
    if (peer != peers_.end()) {
        leave(peer);
    }
    return EMM_OK;
}

CUresult PeerContexts::enter(int32_t device) {
    Access &access = accesses().by_pair[{context_.id, device}];
    const auto [peer, is_new] = peers_.try_emplace(device);
    CUresult result =
        is_new ? driver_.cuDevicePrimaryCtxRetain(&peer->second, device) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        peers_.erase(peer);
        return result;
    }
    access.managers += is_new;
    result = switch_access(peer->second, true);
    access.is_pools_own |= result == CUDA_SUCCESS;
    result = result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : result;
    if (is_new && result != CUDA_SUCCESS) {
        leave(peer);
    }
    return result;
}

// If the context has died, its access has ended too.
CUresult PeerContexts::disable(Peers::iterator peer) {
    const Access &access = accesses().by_pair.at({context_.id, peer->first});
    if (access.managers > 1 || !access.is_pools_own || !context_.lives()) {
        return CUDA_SUCCESS;
    }
    const CUresult result = switch_access(peer->second, false);
    return result == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED ? CUDA_SUCCESS : result;
}

void PeerContexts::leave(Peers::iterator peer) {
    const auto access = accesses().by_pair.find({context_.id, peer->first});
    if (--access->second.managers == 0) {
        accesses().by_pair.erase(access);
    }
    driver_.cuDevicePrimaryCtxRelease(peer->first);
    peers_.erase(peer);
}

CUresult PeerContexts::switch_access(CUcontext peer, bool on) {
    unsigned long long id = 0;
    CUresult result = driver_.cuCtxGetId(peer, &id);
    const Current current(driver_, peer, id);
    result = result == CUDA_SUCCESS ? current.result() : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return on ? driver_.cuCtxEnablePeerAccess(context_.handle, 0)
              : driver_.cuCtxDisablePeerAccess(context_.handle);
}

} // namespace emm::pool
