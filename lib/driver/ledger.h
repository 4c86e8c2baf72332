#pragma once

#include <emm/cuda.h>
#include <emm/emm.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

namespace emm::driver {

// What the metered calls took from the driver and have not given back.
class Ledger {
public:
    enum class Side { device, host };

    struct Taken {
        Side side = Side::device;
        uint64_t bytes = 0; // 0: nothing
    };

    // Of entries that are not counted, which it asks itself; set before anything is taken.
    std::atomic<emm_function (*)(const char *name, int32_t cuda_version) noexcept> find_entry{};

    void took(uint64_t key, Taken taken);
    Taken gave_back(uint64_t key);
    void pool_made(CUmemoryPool pool);
    void pool_gone(CUmemoryPool pool);
    void read(emm_driver_usage &ret_usage);

private:
    uint64_t pool_bytes(CUmemoryPool pool, CUmemPool_attribute attribute) const;

    struct Sum {
        uint64_t now = 0, peak = 0;
    };
    std::mutex mutex_;
    std::map<uint64_t, Taken> taken_; // by address or handle
    std::set<CUmemoryPool> pools_;
    Sum sums_[2];
    uint64_t gone_pools_peak_ = 0;
};

} // namespace emm::driver
