#pragma once

#include "types.h"

#include <algorithm>

namespace emm::torch_backend {

// The figures of one device. What PyTorch has allocated is counted here; what is reserved is known
// to emm, and is read when PyTorch asks.
class Counters {
public:
    void add(size_t size) {
        Lock guard(lock_);
        for (StatType type : {StatType::AGGREGATE, type_of(size)}) {
            count_[size_t(type)].increase(1);
            bytes_[size_t(type)].increase(size);
        }
    }

    void remove(size_t size) {
        Lock guard(lock_);
        for (StatType type : {StatType::AGGREGATE, type_of(size)}) {
            count_[size_t(type)].decrease(1);
            bytes_[size_t(type)].decrease(size);
        }
    }

    void add_out_of_memory() {
        Lock guard(lock_);
        ooms_++;
    }

    size_t allocated() {
        Lock guard(lock_);
        return size_t(bytes_[0].current);
    }

    caching::DeviceStats read(const emm_stats &stats, uint64_t retries) {
        Lock guard(lock_);
        observe(int64_t(stats.reserved_bytes), int64_t(stats.peak_reserved_bytes));
        caching::DeviceStats result;
        result.allocation = result.active = count_;
        result.allocated_bytes = result.active_bytes = result.requested_bytes = bytes_;
        result.reserved_bytes[0] = reserved_;
        result.num_ooms = ooms_;
        result.num_alloc_retries = int64_t(retries - earlier_retries_);
        return result;
    }

    void reset_accumulated(uint64_t retries) {
        Lock guard(lock_);
        for (StatArray *array : {&count_, &bytes_}) {
            for (Stat &stat : *array) {
                stat.reset_accumulated();
            }
        }
        reserved_.reset_accumulated();
        earlier_retries_ = retries;
        ooms_ = 0;
    }

    void reset_peaks(const emm_stats &stats) {
        Lock guard(lock_);
        for (StatArray *array : {&count_, &bytes_}) {
            for (Stat &stat : *array) {
                stat.reset_peak();
            }
        }
        observe(int64_t(stats.reserved_bytes), 0);
        reserved_.reset_peak();
        earlier_peak_ = int64_t(stats.peak_reserved_bytes);
    }

private:
    static StatType type_of(size_t size) {
        return size <= small_size ? StatType::SMALL_POOL : StatType::LARGE_POOL;
    }

    // emm's peak counts from the beginning. After a reset of the peaks it says something new only
    // once it has grown; until then the peak is the highest figure that was read.
    void observe(int64_t current, int64_t peak) {
        if (current > reserved_.current) {
            reserved_.increase(size_t(current - reserved_.current));
        } else {
            reserved_.decrease(size_t(reserved_.current - current));
        }
        if (peak > earlier_peak_) {
            reserved_.peak = std::max(reserved_.peak, peak);
        }
    }

    std::mutex lock_;
    StatArray count_;
    StatArray bytes_;
    Stat reserved_;
    int64_t earlier_peak_ = 0;
    uint64_t earlier_retries_ = 0;
    int64_t ooms_ = 0;
};

} // namespace emm::torch_backend
