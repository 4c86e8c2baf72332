// PyTorch's figures for several pools of emm's together. Knows nothing of PyTorch.
#pragma once

#include <algorithm>
#include <emm/plugin.h>
#include <vector>

namespace emm::torch_backend {

// The sum of figures for PyTorch. No plugin knows the peak of a sum. The peak here is a lower
// bound: the highest of any pool's, or the present sum.
inline emm_stats sum_of(const std::vector<emm_stats> &pools) {
    emm_stats sum = {};
    sum.struct_size = sizeof sum;
    for (const emm_stats &pool : pools) {
        sum.live_bytes += pool.live_bytes;
        sum.cached_bytes += pool.cached_bytes;
        sum.pending_bytes += pool.pending_bytes;
        sum.reserved_bytes += pool.reserved_bytes;
        sum.peak_reserved_bytes = std::max(sum.peak_reserved_bytes, pool.peak_reserved_bytes);
    }
    sum.peak_reserved_bytes = std::max(sum.peak_reserved_bytes, sum.reserved_bytes);
    return sum;
}

// Whether a pool may have `size` bytes without more from the driver.
inline bool may_hold(const emm_stats &pool, size_t size) {
    return pool.cached_bytes + pool.pending_bytes >= size;
}

// The bytes of a pool beside the `listed` bytes of a snapshot.
inline size_t unlisted(const emm_stats &pool, size_t listed) {
    return pool.reserved_bytes > listed ? size_t(pool.reserved_bytes) - listed : 0;
}

} // namespace emm::torch_backend
