#pragma once

#include "common/driver.h"

namespace emm::common {

template <class Driver>
uint64_t pool_figure(const Driver &driver, CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    driver.check(driver.cuMemPoolGetAttribute(pool, attribute, &value), "cuMemPoolGetAttribute");
    return value;
}

// Resets the pool's peak of reserved bytes to the present figure.
template <class Driver> void reset_pool_peak(const Driver &driver, CUmemoryPool pool) {
    cuuint64_t none = 0; // the driver accepts no other value
    driver.check(driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &none),
                 "cuMemPoolSetAttribute");
}

// Makes a pool of the driver return memory cached beyond `keep_bytes`. Returns how much went back.
template <class Driver>
uint64_t trim_pool(const Driver &driver, CUmemoryPool pool, uint64_t keep_bytes) {
    const uint64_t before = pool_figure(driver, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    const uint64_t used = pool_figure(driver, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    if (before <= used || keep_bytes >= before - used) { // the driver's own sum would overflow
        return 0;
    }
    driver.check(driver.cuMemPoolTrimTo(pool, used + keep_bytes), "cuMemPoolTrimTo");
    const uint64_t after = pool_figure(driver, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    return before > after ? before - after : 0;
}

} // namespace emm::common
