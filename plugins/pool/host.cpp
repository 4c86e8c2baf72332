// The slots for pinned host memory.
#include "manager.h"

#include "slow_call.h"

namespace emm::pool {

emm_status Manager::memhostalloc(size_t size, uint32_t flags, void **ret_host,
                                 emm_deviceptr *ret_device) {
    if (!pinned_.serves(flags)) {
        return emm_failf(&host_, EMM_E_NOT_SUPPORTED, 0,
                         "pool: this driver has no pinned memory with flags 0x%x", flags);
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
            return refuse_host(result);
        }
    }
    *ret_host = reinterpret_cast<void *>(block->begin);
    *ret_device = PinnedMemory::device_address(*block);
    return EMM_OK;
}

emm_status Manager::refuse_host(CUresult result) {
    if (!served_.serves()) {
        return served_.failed(served_.lost(), "a driver call");
    }
    if (!is_exhausted(result)) {
        return served_.failed(result, "cuMemHostAlloc");
    }
    unsigned long long live = 0;
    const unsigned long long reserved = pinned_bound_.held(), copy = copy_.pinned();
    {
        const Lock lock(served_.mutex);
        live = pinned_.live();
    }
    char limit[48] = "no host_max";
    if (options_.host_max != UINT64_MAX) {
        snprintf(limit, sizeof limit, "host_max %llu",
                 static_cast<unsigned long long>(options_.host_max));
    }
    return emm_failf(&host_, EMM_E_OUT_OF_HOST_MEMORY, answer_of_driver(result),
                     "pool: %llu bytes of pinned memory live, %llu reserved, of those %llu for the "
                     "copy of a pause (%s)",
                     live, reserved, copy, limit);
}

emm_status Manager::memhostfree(void *host, size_t size, uint32_t flags, emm_stream stream) {
    const auto address = reinterpret_cast<uintptr_t>(host);
    return pinned_.give_to_magazine(flags, address, size, stream)
               ? EMM_OK
               : free_place(address, size, stream, &flags);
}

} // namespace emm::pool
