// The program's memory, and the memory taken from the heap and the slabs for it. Magazines count
// for themselves; their counts are added now and then. The pool's lock protects it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace emm::pool {

class Counts {
public:
    void count_allocation(uint64_t size, uint64_t taken) {
        taken_ += taken;
        live_ += int64_t(size);
        live_count_++;
        allocations_++;
    }
    void count_free(uint64_t size, uint64_t taken) {
        peak_live_ = peak_live();
        taken_ -= taken;
        live_ -= int64_t(size);
        live_count_--;
        frees_++;
    }
    // Taken by the program, or for a magazine.
    void count_taken(uint64_t bytes) { taken_ += bytes; }
    void count_returned(uint64_t bytes) { taken_ -= bytes; }
    void count_failure() { failures_++; }
    // A magazine's live bytes have risen above its peak by this much. No lock is held.
    void raise(int64_t by) { highest_.fetch_add(by, std::memory_order_relaxed); }
    // Adds a magazine's counts, which begin anew.
    void add(uint64_t allocations, uint64_t frees, int64_t live, int64_t highest) {
        peak_live_ = peak_live();
        raise(-highest);
        live_ += live;
        live_count_ += int64_t(allocations - frees);
        allocations_ += allocations;
        frees_ += frees;
    }
    void forget_memory() {
        peak_live_ = peak_live();
        taken_ = 0;
        live_ = live_count_ = 0;
    }

    // Call this after the counts of all magazines have been added.
    void reset_peak() { peak_live_ = live_; }

    uint64_t taken() const { return taken_; } // bytes
    int64_t live() const { return live_; }    // bytes, as asked for
    int64_t live_count() const { return live_count_; }
    // An upper bound: as if all magazines had their most at the same time. It is exact for one
    // thread on one stream. A falling count is noted before it falls.
    int64_t peak_live() const {
        return std::max(peak_live_, live_ + highest_.load(std::memory_order_relaxed));
    }
    uint64_t allocations() const { return allocations_; }
    uint64_t frees() const { return frees_; }
    uint64_t failures() const { return failures_; }

private:
    uint64_t taken_ = 0;
    int64_t live_ = 0;
    int64_t live_count_ = 0;
    int64_t peak_live_ = 0;
    uint64_t allocations_ = 0;
    uint64_t frees_ = 0;
    uint64_t failures_ = 0;
    alignas(64) std::atomic<int64_t> highest_{0}; // the sum over all magazines
};

} // namespace emm::pool
