// The pool's figures about itself.
//
//   live      handed out, as asked for
//   pending   freed, and of no use to an ordinary request yet: unordered frees whose context event
//             is not complete, memory of graphs, memory waiting for its further uses
//   cached    everything else: memory that one stream or all may have at once, and the cost of
//             rounding and half empty slabs
//   largest   one piece of the cached memory; slots, and remnants of up to 1 MiB, do not count
//   reserved  device memory that the driver has given: live (rounded) + pending + cached,
//             unless the pool is paused
//   spilled   of that, host memory
#include "manager.h"

#include "slow_call.h"

#include <algorithm>

namespace emm::pool {

emm_status Manager::get_stats(emm_stats *ret_stats) {
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    {
        const Lock lock(served_.mutex);
        order_.collect_graphs();
        caches_.report(stats);
        stats.paused_bytes = holdings_.paused();
        stats.spilled_bytes = holdings_.spilled();
        stats.cached_bytes = holdings_.cached();
        stats.reserved_bytes = holdings_.held();
        stats.peak_reserved_bytes = holdings_.peak_reserved();
        // Peaks of several magazines may add up to more than was ever live.
        stats.peak_live_bytes = std::min(stats.peak_live_bytes, stats.peak_reserved_bytes);
        stats.failures = memory_.counts.failures();
        stats.pending_bytes = holdings_.pending();
        stats.host_live_bytes = pinned_.live();
        stats.host_reserved_bytes = pinned_bound_.held();
        stats.largest_free_block =
            std::max(memory_.heap.largest_complete(), caches_.largest_kept_block());
        order_.each_pool([&](const StreamPool &pool) {
            stats.largest_free_block =
                std::max(stats.largest_free_block, Heap::largest_block_of(pool));
        });
        if (pause_.is_paused()) {
            stats.cached_bytes = 0; // a paused pool has no memory for requests
        }
        stats.largest_free_block = std::min(stats.largest_free_block, stats.cached_bytes);
        check();
    }
    emm_copy_sized(ret_stats, &stats);
    return EMM_OK;
}

emm_status Manager::reset_peaks() {
    {
        const SlowCall call(served_.driver, caches_);
        const Lock lock(served_.mutex);
        caches_.reset_peak();
        holdings_.reset_peak();
    }
    check_unlocked();
    return EMM_OK;
}

emm_status Manager::get_memory_info(size_t *ret_free, size_t *ret_total) {
    size_t free = 0, total = 0;
    {
        const Current current = served_.make_current();
        CUresult result = current.result();
        result = result == CUDA_SUCCESS ? served_.driver.cuMemGetInfo(&free, &total) : result;
        if (result != CUDA_SUCCESS) {
            return served_.failed(result, "cuMemGetInfo");
        }
    }
    const Lock lock(served_.mutex);
    const uint64_t reserved = holdings_.of_device(), paused = holdings_.paused();
    const uint64_t room = options_.max > reserved ? options_.max - reserved : 0;
    const uint64_t left = free > paused ? free - paused : 0; // free after a resume
    *ret_total = std::min<uint64_t>(total, options_.max);
    // Memory that was free before the lock may be cached by now, and is not counted twice.
    const uint64_t cached = pause_.is_paused() ? 0 : holdings_.cached_of_device();
    *ret_free = std::min<uint64_t>(std::min(left, room) + cached, *ret_total);
    return EMM_OK;
}

emm_status Manager::get_device_total(const emm_host &, int32_t, size_t device_bytes,
                                     const char *const *texts, size_t *ret_total) {
    *ret_total = std::min<uint64_t>(device_bytes, Options(texts).max);
    return EMM_OK;
}

emm_status Manager::check_options(const emm_host &, const char *const *texts) {
    static_cast<void>(Options(texts)); // throws
    return EMM_OK;
}

emm_status Manager::query(emm_deviceptr ptr, emm_block_info *ret_info) {
    emm_block_info info = {};
    info.struct_size = sizeof info;
    info.kind = EMM_KIND_DEVICE;
    info.device = served_.device;
    {
        Lock lock(served_.mutex);
        const BlockOrSlot allocation = memory_.heap.around(ptr);
        if (!allocation) {
            lock.unlock();
            return emm_failf(&host_, EMM_E_NOT_OWNED, 0,
                             "pool: 0x%llx is not in a live allocation of this manager", ptr);
        }
        info.base = allocation.begin();
        info.size = allocation.requested();
    }
    emm_copy_sized(ret_info, &info);
    return EMM_OK;
}

} // namespace emm::pool
