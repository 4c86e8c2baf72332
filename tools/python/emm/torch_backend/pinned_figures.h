#pragma once

#include "types.h"

#include <ATen/core/CachingHostAllocator.h>
#include <algorithm>
#include <bit>
#include <chrono>

namespace emm::torch_backend {

// torch.cuda.host_memory_stats(). The caller holds a lock.
//
// Each request goes to emm, so a request counts as an allocation, and its time is that of emm's
// call. Only emm knows the reserved bytes, and they are read when PyTorch asks. So their peak is
// the highest figure that was read.
class PinnedFigures {
public:
    using Time = std::chrono::steady_clock::time_point;

    void add(size_t size, Time begin) {
        stats_.active_requests.increase(1);
        stats_.active_bytes.increase(size);
        stats_.bucket_allocation[bucket_of(size)]++;
        stats_.host_alloc_time.increase(microseconds_since(begin));
    }

    void remove(size_t size) {
        stats_.active_requests.decrease(1);
        stats_.active_bytes.decrease(size);
    }

    void add_free_time(Time begin) { stats_.host_free_time.increase(microseconds_since(begin)); }

    at::HostStats read(size_t reserved) {
        observe(reserved);
        at::HostStats result = stats_;
        result.allocations = result.active_requests;
        result.num_host_alloc = result.allocations.allocated;
        result.num_host_free = result.allocations.freed;
        return result;
    }

    void reset_accumulated() {
        for (Stat *stat :
             {&stats_.active_requests, &stats_.active_bytes, &stats_.allocated_bytes}) {
            stat->reset_accumulated();
        }
        stats_.host_alloc_time.reset_accumulated();
        stats_.host_free_time.reset_accumulated();
        std::fill(stats_.bucket_allocation.begin(), stats_.bucket_allocation.end(), 0);
    }

    void reset_peaks(size_t reserved) {
        observe(reserved);
        for (Stat *stat :
             {&stats_.active_requests, &stats_.active_bytes, &stats_.allocated_bytes}) {
            stat->reset_peak();
        }
        stats_.host_alloc_time.reset_peak();
        stats_.host_free_time.reset_peak();
    }

private:
    // The exponent of the smallest power of two that the size fits in.
    static size_t bucket_of(size_t size) { return size_t(std::bit_width(size - 1)); }

    static int64_t microseconds_since(Time begin) {
        const auto passed = std::chrono::steady_clock::now() - begin;
        return std::chrono::duration_cast<std::chrono::microseconds>(passed).count();
    }

    // A plugin without statistics counts the used bytes as reserved.
    void observe(size_t reserved) {
        Stat &all = stats_.allocated_bytes;
        const auto current = std::max(int64_t(reserved), stats_.active_bytes.current);
        if (current > all.current) {
            all.increase(size_t(current - all.current));
        } else {
            all.decrease(size_t(all.current - current));
        }
        all.peak = std::max(all.peak, stats_.active_bytes.peak);
    }

    at::HostStats stats_;
};

} // namespace emm::torch_backend
