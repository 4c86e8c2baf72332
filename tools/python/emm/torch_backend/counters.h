#pragma once

#include "types.h"

#include <algorithm>
#include <array>

namespace emm::torch_backend {

// The figures of one device. Counts PyTorch's allocations, and the segments of its pools. emm knows
// the reserved bytes, which are read when PyTorch asks.
class Counters {
public:
    void add(size_t requested, bool is_part) { change(requested, is_part, &Stat::increase); }
    void remove(size_t requested, bool is_part) { change(requested, is_part, &Stat::decrease); }
    void add_segment(size_t size) { change_segments(size, &Stat::increase); }
    void remove_segment(size_t size) { change_segments(size, &Stat::decrease); }

    void add_out_of_memory() {
        Lock guard(lock_);
        ooms_++;
    }

    size_t allocated() {
        Lock guard(lock_);
        return size_t(bytes_[0].current);
    }

    // The bytes of blocks and of whole segments: PyTorch's limit applies to these.
    size_t taken() {
        Lock guard(lock_);
        return size_t(taken_.current);
    }

    // Includes the reserved bytes in `stats` in the peak.
    void sample(const emm_stats &stats) {
        Lock guard(lock_);
        observe(int64_t(stats.reserved_bytes), int64_t(stats.peak_reserved_bytes));
    }

    caching::DeviceStats read(const emm_stats &stats, uint64_t retries) {
        Lock guard(lock_);
        observe(int64_t(stats.reserved_bytes), int64_t(stats.peak_reserved_bytes));
        caching::DeviceStats result;
        result.allocation = result.active = count_;
        result.allocated_bytes = result.active_bytes = bytes_;
        result.requested_bytes = requested_;
        result.segment = segments_;
        result.reserved_bytes = reserved_;
        result.num_ooms = ooms_;
        result.num_alloc_retries = int64_t(retries - earlier_retries_);
        return result;
    }

    void reset_accumulated(uint64_t retries) {
        Lock guard(lock_);
        for (StatArray *array : arrays_) {
            for (Stat &stat : *array) {
                stat.reset_accumulated();
            }
        }
        earlier_retries_ = retries;
        ooms_ = 0;
    }

    void reset_peaks(const emm_stats &stats) {
        Lock guard(lock_);
        observe(int64_t(stats.reserved_bytes), 0);
        for (StatArray *array : arrays_) {
            for (Stat &stat : *array) {
                stat.reset_peak();
            }
        }
        earlier_peak_ = int64_t(stats.peak_reserved_bytes);
    }

private:
    using Change = void (Stat::*)(size_t);

    void change(size_t requested, bool is_part, Change by) {
        Lock guard(lock_);
        if (!is_part) {
            (taken_.*by)(block_size(requested));
        }
        for (StatType type : {StatType::AGGREGATE, type_of(requested > small_size)}) {
            (count_[size_t(type)].*by)(1);
            (bytes_[size_t(type)].*by)(block_size(requested));
            (requested_[size_t(type)].*by)(requested);
        }
    }

    void change_segments(size_t size, Change by) {
        Lock guard(lock_);
        const StatType type = type_of(is_large_segment(size));
        (segments_[size_t(StatType::AGGREGATE)].*by)(1);
        (segments_[size_t(type)].*by)(1);
        (reserved_[size_t(type)].*by)(size);
        (taken_.*by)(size);
    }

    static StatType type_of(bool is_large) {
        return is_large ? StatType::LARGE_POOL : StatType::SMALL_POOL;
    }

    // emm's peak counts from the beginning. After a reset of the peaks, it is news only once it has
    // grown; until then the peak is the highest figure that was read. A plugin that counts bytes as
    // asked for reserves their rounded sizes.
    void observe(int64_t current, int64_t peak) {
        Stat &all = reserved_[size_t(StatType::AGGREGATE)];
        const Stat &allocated = bytes_[size_t(StatType::AGGREGATE)];
        current = std::max(current, allocated.current);
        if (current > all.current) {
            all.increase(size_t(current - all.current));
        } else {
            all.decrease(size_t(all.current - current));
        }
        all.peak = std::max({all.peak, peak > earlier_peak_ ? peak : 0, allocated.peak});
    }

    std::mutex lock_;
    StatArray count_;
    StatArray bytes_; // of whole blocks
    StatArray requested_;
    StatArray segments_;
    StatArray reserved_; // small and large: in segments_
    Stat taken_;         // blocks outside of segments, and segments
    const std::array<StatArray *, 5> arrays_{&count_, &bytes_, &requested_, &segments_, &reserved_};
    int64_t earlier_peak_ = 0;
    uint64_t earlier_retries_ = 0;
    int64_t ooms_ = 0;
};

} // namespace emm::torch_backend
