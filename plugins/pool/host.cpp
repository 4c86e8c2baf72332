// The slots for pinned host memory.
#include "manager.h"

#include "slow_call.h"

namespace emm::pool {

emm_status Manager::memhostalloc(size_t size, uint32_t flags, void **ret_host,
                                 emm_deviceptr *ret_device) {
    if (!pinned_.serves(flags)) {
        return emm_failf(&host_, EMM_E_NOT_SUPPORTED, 0,
                         "pool: pinned memory with flags 0x%x cannot be had here", flags);
    }
    Block *block = pinned_.take_from_magazine(flags, size);
    if (!block) {
        if (!served_.serves()) {
            return served_.failed(served_.lost(), "an earlier call");
        }
        CUresult result = CUDA_SUCCESS;
        const SlowCall call(served_.driver, caches_);
        Lock lock(served_.mutex);
        block = pinned_.take(lock, flags, size, result);
        check();
        if (!block) {
            lock.unlock();
            return refuse_host(size, result);
        }
    }
    *ret_host = reinterpret_cast<void *>(block->begin);
    *ret_device = PinnedMemory::device_address(*block);
    return EMM_OK;
}

emm_status Manager::refuse_host(size_t size, CUresult result) {
    if (!served_.serves()) {
        return served_.failed(served_.lost(), "a driver call");
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
        return served_.failed(result, "cuMemHostAlloc");
    }
    unsigned long long live = 0, reserved = 0;
    {
        const Lock lock(served_.mutex);
        live = pinned_.live();
        reserved = pinned_.reserved();
    }
    char limit[48] = "no host_max";
    if (options_.host_max != UINT64_MAX) {
        snprintf(limit, sizeof limit, "host_max %llu",
                 static_cast<unsigned long long>(options_.host_max));
    }
    return emm_failf(&host_, EMM_E_OUT_OF_HOST_MEMORY, result,
                     "pool: out of pinned host memory: %zu bytes asked for, %llu live, %llu "
                     "reserved (%s)",
                     size, live, reserved, limit);
}

emm_status Manager::refuse_host_free(const void *host) {
    return emm_failf(&host_, EMM_E_NOT_OWNED, 0,
                     "pool: memhostfree of %p, which is no live pinned allocation of this manager "
                     "with these flags: freed already, or not where an allocation begins",
                     host);
}

emm_status Manager::memhostfree(void *host, size_t size, uint32_t flags, emm_stream stream) {
    const auto address = reinterpret_cast<uintptr_t>(host);
    if (pinned_.give_to_magazine(flags, address, size, stream)) {
        return EMM_OK;
    }
    const SlowCall call(served_.driver, caches_);
    Lock lock(served_.mutex);
    Place place = pinned_.lent_at(flags, address);
    const uint64_t asked = place ? place.requested() : 0;
    if (place && size != 0 && size != asked) {
        lock.unlock();
        return emm_failf(&host_, EMM_E_INVALID_VALUE, 0,
                         "pool: memhostfree of %p as %zu bytes, which was allocated as %llu; it "
                         "was not freed",
                         host, size, static_cast<unsigned long long>(asked));
    }
    Caller caller;
    StreamPool *const known =
        place ? known_to_free_on(stream, caller, pinned_.unordered_pool(*place.block)) : nullptr;
    if (place && !known) {
        const Unlocked unlocked(lock);
        const emm_status status = identify_to_free(stream, caller);
        if (status != EMM_OK) {
            return status;
        }
    }
    place = pinned_.lent_at(flags, address); // unless another thread was quicker
    if (!place) {
        lock.unlock();
        return refuse_host_free(host);
    }
    StreamPool &pool =
        known ? *known : pool_to_free_on(caller, pinned_.unordered_pool(*place.block));
    pool.hold();
    if (known && !place.uses()) {
        pinned_.hand_over(stream, stream == EMM_STREAM_UNORDERED ? order_.common() : pool);
    }
    if (StreamPool *used = pinned_.free(place, pool)) {
        order_.record_event_if_reachable(lock, *used);
    }
    upkeep(lock, pool, &caller);
    order_.let_go(pool);
    return EMM_OK;
}

} // namespace emm::pool
