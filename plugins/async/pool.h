#pragma once

#include "async/driver.h"
#include "common/driver_pool.h"

namespace emm::async {

// A memory pool of the driver. It belongs to the device, so its memory outlives the context. Its
// functions, even queries of attributes, invalidate captures unless the capture mode is relaxed.
class Pool {
public:
    using Entries = Driver;

    // `max_bytes` 0: no limit. `shareable`: other processes can open the pool, by file descriptor.
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
    // After the context's end, the pool and its addresses stay ours, and nothing uses them.
    // cuMemFree needs no context, and does not wait for memory of a pool.
    void free_after_context(CUdeviceptr ptr, size_t) const noexcept { driver_.cuMemFree(ptr); }
    // A failed request may have made the pool grow: gives that memory back.
    void return_unused() const noexcept { driver_.cuMemPoolTrimTo(pool_, 0); }

    // If the pool has reserved more than this, a wait for a stream returns free memory.
    void set_release_threshold(uint64_t bytes) const;
    void set_access(int32_t peer_device, uint32_t flags) const;
    // Returns how much of the cached memory beyond `keep_bytes` went back.
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
