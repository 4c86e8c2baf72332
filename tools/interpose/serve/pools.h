// The program's memory pools: which device has one of the program's own in place of its default
// pool. Memory of the default pool is emm's, memory of other pools is the driver's.
#pragma once

#include "contexts.h"

#include <map>

namespace emm::run {

// The bytes that may lie idle if the program wants at most `keep_reserved` bytes reserved.
uint64_t idle_to_keep(uint64_t keep_reserved, uint64_t live);

class Pools {
public:
    explicit Pools(const Driver &driver) : driver_(driver) {}

    // Stream-ordered allocations of the device come from `pool` from now on.
    void set(CUdevice device, CUmemoryPool pool);

    // The pool is gone: its devices have their default pools again.
    std::vector<CUdevice> forget(CUmemoryPool pool);

    // The program's own pool for the device of the context; NULL: the default pool.
    CUmemoryPool own_for(emm_context *context) {
        return any_own_.load(std::memory_order_acquire) ? find_own(context) : nullptr;
    }

    // Whether the pool is the default pool of a device, and of which.
    bool is_default(CUmemoryPool pool, CUdevice &ret_device);

    // The access of `peer` to the default pool of `device`, in contexts that begin later too.
    // Throws std::bad_alloc.
    void set_access(CUdevice device, CUdevice peer, uint32_t access);
    std::map<CUdevice, uint32_t> access_of(CUdevice device);

private:
    CUmemoryPool find_own(emm_context *context);
    void find_defaults();

    const Driver &driver_;
    std::once_flag found_;
    std::vector<CUmemoryPool> defaults_; // by device; NULL: none
    std::mutex mutex_;
    std::map<CUdevice, CUmemoryPool> own_;
    std::map<CUdevice, std::map<CUdevice, uint32_t>> access_; // by device and peer
    std::atomic<bool> any_own_{false};
};

} // namespace emm::run
