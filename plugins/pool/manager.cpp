#include "manager.h"

#include <algorithm>

namespace emm::pool {

namespace {

std::atomic<uint64_t> next_identity{1};

// A thread looks for whole blocks, whatever ends that.
class Search {
public:
    Search(Lock &lock, ThreadCaches &caches) : lock_(lock), caches_(caches) {
        caches_.begin_search();
    }
    ~Search() {
        if (!lock_.owns_lock()) {
            lock_.lock();
        }
        caches_.end_search();
    }
    Search(const Search &) = delete;
    Search &operator=(const Search &) = delete;

private:
    Lock &lock_;
    ThreadCaches &caches_;
};

} // namespace

Manager::Manager(const emm_host &host, const emm_context_info &info, const char *const *texts)
    : options_(texts), served_(host, info, serving_),
      identity_(next_identity.fetch_add(1, std::memory_order_relaxed)), serving_(identity_) {
    if (paged_) {
        prepare_paging();
    } else if (options_.initial == 0) { // only then do small requests never ask the large zone
        heap_.set_scraps_apart();
    }
    try {
        take_initial();
        order_.enter_registry();
    } catch (...) {
        reset();
        throw;
    }
}

void Manager::take_initial() {
    if (options_.initial == 0) {
        return;
    }
    Lock lock(mutex_);
    const uint64_t bytes = round_up(options_.initial, segment_granule);
    CUresult result =
        paged_ ? add_space(lock, bytes, Zone::large) : add_segment(lock, bytes, Zone::large);
    if (paged_ && result == CUDA_SUCCESS) {
        result = fill(lock, heap_.room_for(order_.common(), bytes, Zone::large), true);
    }
    if (result != CUDA_SUCCESS) {
        const bool exhausted = result == CUDA_ERROR_OUT_OF_MEMORY;
        throw PluginError(exhausted ? EMM_E_OUT_OF_MEMORY : EMM_E_DRIVER, result,
                          "pool: the initial memory cannot be had");
    }
}

Manager::~Manager() {
    cross_context_.end();
    order_.leave_registry();
    {
        const std::lock_guard ending(Thread::ending());
        const Lock lock(mutex_);
        caches_.close(nullptr);
    }
    reset();
    while (Segment *segment = refused_.pop_front()) {
        delete segment;
    }
    if (!peers_.empty()) {
        drop_peers();
    }
}

emm_status Manager::reset() {
    List<Segment, &Segment::all> segments, pinned;
    std::list<CrossContext::Marks> marks;
    {
        const Lock lock(mutex_);
        marks = cross_context_.forget();
        caches_.close(nullptr);
        forget_everything();
        segments = heap_.forget_all();
        while (Segment *segment = refused_.pop_front()) {
            segments.push_back(*segment);
        }
        for (auto &pool : hosts_) {
            if (pool) {
                forget_host(*pool, pinned);
            }
        }
    }
    cross_context_.drop(marks);
    while (Segment *segment = pinned.pop_front()) {
        const uint64_t bytes = free_host_segment(*segment);
        const Lock lock(mutex_);
        host_reserved_ -= bytes;
    }
    const bool lives = served_.lives();
    if (lives && paged_ && !segments.empty()) {
        await_device(); // unlike cuMemFree, cuMemUnmap waits for nothing
    }
    while (Segment *segment = segments.pop_front()) {
        uint64_t bytes = segment->driver_bytes;
        if (segment->paged()) {
            bytes = free_space(*segment); // pages are the device's, not the context's
        } else if (lives) {
            const Relaxed relaxed(driver_);
            driver_.cuMemFree(segment->driver_base); // nothing to do about a failure
        }
        const Lock lock(mutex_);
        holdings_.remove(bytes);
        if (segment->refused) {
            refused_.push_back(*segment);
        } else {
            delete segment;
        }
    }
    return EMM_OK;
}

// Every allocation, and all that was remembered about freed memory. Registered streams stay
// registered.
void Manager::forget_everything() {
    caches_.forget_quarantine();
    order_.each_pool([this](StreamPool &pool) {
        while (Slab *slab = pool.slabs.pop_front()) {
            slabs_.forget(*slab);
        }
    });
    order_.forget_memory();
    exports_.clear();
    slabs_.forget_all();
    counts_.forget_memory();
    holdings_.forget_memory();
    host_live_ = host_taken_ = host_waiting_ = 0;
}

emm_status Manager::defer_cleanup(uint32_t enter) {
    const Lock lock(mutex_);
    enter ? moves_.defer() : moves_.end_deferral();
    return EMM_OK;
}

emm_status Manager::trim(size_t keep_bytes, size_t *ret_released) {
    size_t released = 0;
    {
        Lock lock(mutex_);
        order_.collect_graphs();
        const Search whole_blocks(lock, caches_);
        caches_.drain_all();
        order_.record_and_query_all(lock, false);
        order_.record_what_is_left(lock);
        cross_context_.mark_what_is_left(lock);
        if (!moves_.are_deferred()) {
            drop_spares();
        }
        released = release_idle(lock, keep_bytes, false);
        released +=
            release_host(lock, keep_bytes - std::min<uint64_t>(keep_bytes, holdings_.cached()));
    }
    {
        const Lock lock(mutex_);
        check();
    }
    *ret_released = released;
    return EMM_OK;
}

// --- peers ---------------------------------------------------------------------------------------

// cuCtxEnablePeerAccess covers all of a context's cuMemAlloc memory, present and future, and is
// called from the side that wants to see it: here the peer's primary context.
emm_status Manager::set_access(int32_t peer_device, uint32_t flags) {
    if (!driver_.serves_peers() || (flags == EMM_ACCESS_READ && !paged_)) {
        return host_.fail(EMM_E_NOT_SUPPORTED, 0,
                          "pool: cuMemAlloc memory can be opened to a peer for reading and writing "
                          "only, by a driver that has peer access");
    }
    int possible = 0;
    CUresult result = driver_.cuDeviceCanAccessPeer(&possible, peer_device, device_);
    if (result != CUDA_SUCCESS) {
        return served_.failed(result, "cuDeviceCanAccessPeer");
    }
    if (!possible && flags != EMM_ACCESS_NONE) {
        return emm_failf(&host_, EMM_E_NOT_SUPPORTED, 0,
                         "pool: device %d cannot reach the memory of device %d", peer_device,
                         device_);
    }
    if (paged_) {
        return set_paged_access(peer_device, flags);
    }
    std::list<int32_t> device{peer_device}; // before anything is done that it is to remember
    CUcontext peer = nullptr;
    result = driver_.cuDevicePrimaryCtxRetain(&peer, peer_device);
    if (result != CUDA_SUCCESS) {
        return served_.failed(result, "cuDevicePrimaryCtxRetain");
    }
    result = switch_access(peer, flags != EMM_ACCESS_NONE);
    return keep_peer(std::move(device), flags != EMM_ACCESS_NONE, result);
}

CUresult Manager::switch_access(CUcontext peer, bool on) {
    unsigned long long id = 0;
    CUresult result = driver_.cuCtxGetId(peer, &id);
    const Current current(driver_, peer, id);
    result = result == CUDA_SUCCESS ? current.result() : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result =
        on ? driver_.cuCtxEnablePeerAccess(context_, 0) : driver_.cuCtxDisablePeerAccess(context_);
    const bool was_so = result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ||
                        result == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    return was_so ? CUDA_SUCCESS : result;
}

// Each peer that may reach us keeps one reference on its primary context.
emm_status Manager::keep_peer(std::list<int32_t> peer, bool on, CUresult result) {
    const int32_t device = peer.front();
    int releases = 1;
    if (result == CUDA_SUCCESS) {
        const Lock lock(mutex_);
        const auto known = std::find(peers_.begin(), peers_.end(), device);
        if (on && known == peers_.end()) {
            peers_.splice(peers_.end(), peer);
            releases = 0;
        } else if (!on && known != peers_.end()) {
            peers_.erase(known);
            releases = 2;
        }
    }
    while (releases-- > 0) {
        driver_.cuDevicePrimaryCtxRelease(device);
    }
    return result == CUDA_SUCCESS ? EMM_OK : served_.failed(result, "cuCtxEnablePeerAccess");
}

void Manager::drop_peers() {
    for (const int32_t device : peers_) {
        driver_.cuDevicePrimaryCtxRelease(device);
    }
}

} // namespace emm::pool
