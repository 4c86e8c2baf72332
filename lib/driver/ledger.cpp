#include "driver/ledger.h"

#include <algorithm>

namespace emm::driver {

uint64_t Ledger::pool_bytes(CUmemoryPool pool, CUmemPool_attribute attribute) const {
    using Get = CUresult (*)(CUmemoryPool, CUmemPool_attribute, void *);
    static const Get get = reinterpret_cast<Get>(find_entry.load()("cuMemPoolGetAttribute", 12000));
    cuuint64_t bytes = 0;
    return get && get(pool, attribute, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

void Ledger::took(uint64_t key, Taken taken) {
    if (taken.bytes == 0) {
        return;
    }
    std::lock_guard lock(mutex_);
    taken_[key] = taken;
    Sum &sum = sums_[static_cast<int>(taken.side)];
    sum.now += taken.bytes;
    sum.peak = std::max(sum.peak, sum.now);
}

Ledger::Taken Ledger::gave_back(uint64_t key) {
    std::lock_guard lock(mutex_);
    const auto found = taken_.find(key);
    if (found == taken_.end()) {
        return {}; // memory of a pool, which keeps its own account
    }
    const Taken taken = found->second;
    sums_[static_cast<int>(taken.side)].now -= taken.bytes;
    taken_.erase(found);
    return taken;
}

void Ledger::pool_made(CUmemoryPool pool) {
    std::lock_guard lock(mutex_);
    pools_.insert(pool);
}

void Ledger::pool_gone(CUmemoryPool pool) {
    const uint64_t peak = pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
    std::lock_guard lock(mutex_);
    if (pools_.erase(pool) != 0) {
        gone_pools_peak_ = std::max(gone_pools_peak_, peak);
    }
}

void Ledger::read(emm_driver_usage &ret_usage) {
    std::set<CUmemoryPool> pools;
    {
        std::lock_guard lock(mutex_);
        ret_usage.device_bytes = sums_[0].now;
        ret_usage.peak_device_bytes = sums_[0].peak;
        ret_usage.host_bytes = sums_[1].now;
        ret_usage.peak_host_bytes = sums_[1].peak;
        pools = pools_;
    }
    uint64_t peak = 0;
    for (const CUmemoryPool pool : pools) {
        ret_usage.device_bytes += pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        peak += pool_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
    }
    ret_usage.peak_device_bytes += std::max(peak, gone_pools_peak_);
}

} // namespace emm::driver
