#pragma once

#include "async/driver.h"
#include "common/driver_pool.h"

namespace emm::async {

// A memory pool of the driver. It belongs to the device: what is in it outlives the context. Its
// functions, down to asking for an attribute, invalidate captures unless the mode is relaxed.
class Pool {
public:
    using Entries = Driver;

    // `max_bytes` 0: no limit. `shareable`: other processes can open it, by file descriptor.
    Pool(const Driver &driver, int32_t device, uint64_t max_bytes, bool shareable);
    ~Pool() {
        const common::RelaxedCapture relaxed(driver_);
        driver_.cuMemPoolDestroy(pool_);
    }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    CUresult allocate(size_t size, CUstream stream, CUdeviceptr *ret_ptr) const {
        return driver_.cuMemAllocFromPoolAsync(ret_ptr, size, pool_, stream);
    }
    [[noreturn]] void fail(CUresult result, size_t size) const;
    CUresult free(CUdeviceptr ptr, size_t, CUstream stream) const {
        return driver_.cuMemFreeAsync(ptr, stream);
    }
    static constexpr const char *freeing = "cuMemFreeAsync";
    static constexpr bool keeps_freed = true;
    // The pool and its addresses stay ours. Nothing uses them any more, and cuMemFree, which needs
    // no context, does not wait for them.
    void free_after_context(CUdeviceptr ptr, size_t) const noexcept { driver_.cuMemFree(ptr); }
    // A request that failed may have made the pool grow: that memory goes back.
    void return_unused() const noexcept { driver_.cuMemPoolTrimTo(pool_, 0); }

    // Free memory beyond this goes back to the driver whenever a stream is waited for.
    void set_release_threshold(uint64_t bytes) const;
    void set_access(int32_t peer_device, uint32_t flags) const;
    // How much went, of what was cached beyond `keep_bytes`.
    uint64_t trim(uint64_t keep_bytes) const {
        return common::trim_pool(driver_, pool_, keep_bytes);
    }

    uint64_t number() const { return reinterpret_cast<uintptr_t>(pool_); } // the driver's handle
    uint64_t reserved() const { return get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
    uint64_t peak_reserved() const { return get(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH); }
    void reset_peak() const { common::reset_pool_peak(driver_, pool_); }
    uint64_t used() const { return get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }

private:
    void export_once();
    uint64_t get(CUmemPool_attribute attribute) const {
        return common::pool_figure(driver_, pool_, attribute);
    }

    const Driver &driver_;
    CUmemoryPool pool_ = nullptr;
};

} // namespace emm::async
