#include "manager.h"

#include "slow_call.h"

#include <algorithm>

namespace emm::pool {

namespace {

std::atomic<uint64_t> next_identity{1};

} // namespace

Manager::Manager(const emm_host &host, const emm_context_info &info, const char *const *texts)
    : options_(texts), served_(host, info, serving_),
      identity_(next_identity.fetch_add(1, std::memory_order_relaxed)), serving_(identity_) {
    try {
        take_initial();
        order_.enter_registry();
    } catch (...) {
        backing_->begin_end();
        reset();
        throw;
    }
}

void Manager::take_initial() {
    if (options_.initial == 0) {
        return;
    }
    Lock lock(served_.mutex);
    const uint64_t bytes = round_up(options_.initial, segment_granule);
    const CUresult result = backing_->take_initial(lock, bytes);
    if (result != CUDA_SUCCESS) {
        throw PluginError(is_exhausted(result) ? EMM_E_OUT_OF_MEMORY : EMM_E_DRIVER,
                          answer_of_driver(result),
                          "pool: option initial: the driver refuses the memory");
    }
}

Manager::~Manager() {
    cross_context_.end();
    order_.leave_registry();
    cross_context_.take_back();
    {
        const std::lock_guard ending(Thread::ending());
        const Lock lock(served_.mutex);
        caches_.close(nullptr);
    }
    backing_->begin_end();
    reset();
    backing_->give_back({}); // tries again what the driver has refused
}

emm_status Manager::reset() {
    const SlowCall call(served_.driver, caches_);
    List<Segment, &Segment::all> segments, pinned;
    std::list<Marks> marks;
    {
        const Lock lock(served_.mutex);
        marks = cross_context_.forget();
        caches_.close(nullptr);
        forget_everything();
        segments = memory_.heap.forget_all();
        pinned = pinned_.forget_all();
    }
    cross_context_.drop(marks);
    pinned_.give_back(pinned);
    backing_->give_back(segments);
    copy_.release();
    const Lock lock(served_.mutex);
    pause_.open();
    return EMM_OK;
}

// Forgets every allocation, and all state of freed memory. Registered streams stay registered.
void Manager::forget_everything() {
    caches_.forget_quarantine();
    order_.each_pool([this](StreamPool &pool) {
        while (Slab *slab = pool.slabs.pop_front()) {
            memory_.slabs.forget(*slab);
        }
    });
    order_.forget_memory();
    exports_.forget_all();
    memory_.slabs.forget_all();
    memory_.counts.forget_memory();
    holdings_.forget_memory();
}

emm_status Manager::defer_cleanup(uint32_t enter) {
    {
        const Lock lock(served_.mutex);
        enter ? moves_.defer_returns() : moves_.end_deferral();
    }
    release_idle_copy({copy_mutex_, std::try_to_lock});
    return EMM_OK;
}

emm_status Manager::trim(size_t keep_bytes, size_t *ret_released) {
    size_t released = 0;
    {
        const SlowCall call(served_.driver, caches_);
        Lock lock(served_.mutex);
        if (!pause_.is_open()) {
            *ret_released = 0;
            return EMM_OK;
        }
        released = release_idle(lock, keep_bytes);
        released += pinned_.release_idle(
            lock, keep_bytes - std::min<uint64_t>(keep_bytes, holdings_.cached()));
    }
    release_idle_copy({copy_mutex_, std::try_to_lock});
    check_unlocked();
    *ret_released = released;
    return EMM_OK;
}

// Covers device memory, wherever it is kept. A call that may keep all waits for no stream.
size_t Manager::release_idle(Lock &lock, std::optional<uint64_t> keep_bytes) {
    const PauseState::Use use(lock, pause_);
    order_.collect_graphs();
    const ThreadCaches::Search whole_blocks(lock, caches_);
    caches_.drain_all();
    order_.record_and_query_all(lock, false);
    order_.record_what_is_left(lock);
    if (keep_bytes != SIZE_MAX) {
        order_.await_recorded(lock);
    }
    cross_context_.mark_what_is_left(lock, keep_bytes != SIZE_MAX);
    caches_.give_up_waiting_blocks();
    if (!moves_.returns_are_deferred()) {
        drop_spares();
    }
    return backing_->release_idle(lock, keep_bytes ? *keep_bytes : holdings_.most_idle(), false);
}

void Manager::drop_spares() {
    order_.each_pool([this](StreamPool &pool) { memory_.slabs.drop_spares(pool); });
}

// --- other processes and devices ----------------------------------------------------------------

emm_status Manager::get_ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle) {
    Lock lock(served_.mutex);
    if (!pause_.admit(lock, options_.waits_when_paused)) {
        lock.unlock();
        return refuse_paused("get_ipc_handle");
    }
    const PauseState::Use use(lock, pause_);
    lock.unlock();
    return exports_.begin(ptr, size, *ret_handle);
}

emm_status Manager::release_ipc_handle(const emm_ipc_handle *handle) {
    const emm_status status = exports_.end(*handle);
    check_unlocked();
    return status;
}

emm_status Manager::set_access(int32_t peer_device, uint32_t flags) {
    const Driver &driver = served_.driver;
    if (!driver.serves_peers() || !backing_->serves_access(flags)) {
        return host_.fail(
            EMM_E_NOT_SUPPORTED, 0,
            "pool: with growth=segment, a peer can read and write, not read alone, and "
            "only with a driver that has peer access");
    }
    int possible = 0;
    CUresult result = driver.cuDeviceCanAccessPeer(&possible, peer_device, served_.device);
    if (result != CUDA_SUCCESS) {
        return served_.failed(result, "cuDeviceCanAccessPeer");
    }
    if (!possible && flags != EMM_ACCESS_NONE) {
        return emm_failf(&host_, EMM_E_NOT_SUPPORTED, 0,
                         "pool: device %d cannot reach the memory of device %d", peer_device,
                         served_.device);
    }
    return backing_->set_access(peer_device, flags);
}

} // namespace emm::pool
