// What the program has, and what is taken from the heap and the slabs for it. Magazines count for
// themselves; their counts are added now and then. The pool's lock protects it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace emm::pool {

class Counts {
public:
    void count_allocation(uint64_t size, uint64_t taken) {
        taken_ += taken;
        live_ += int64_t(size);
        live_count_++;
        allocations_++;
        peak_live_ = std::max(peak_live_, live_);
    }
    void count_free(uint64_t size, uint64_t taken) {
        taken_ -= taken;
        live_ -= int64_t(size);
        live_count_--;
        frees_++;
    }
    // By the program, or to lie in a magazine.
    void count_taken(uint64_t bytes) { taken_ += bytes; }
    void count_returned(uint64_t bytes) { taken_ -= bytes; }
    void count_failure() { failures_++; }
    // A magazine's, which begins anew.
    void add(uint64_t allocations, uint64_t frees, int64_t live, int64_t highest) {
        peak_live_ = std::max(peak_live_, live_ + highest);
        live_ += live;
        live_count_ += int64_t(allocations - frees);
        allocations_ += allocations;
        frees_ += frees;
    }
    void forget_memory() {
        taken_ = 0;
        live_ = live_count_ = 0;
    }

    uint64_t taken() const { return taken_; } // bytes
    int64_t live() const { return live_; }    // bytes, as asked for
    int64_t live_count() const { return live_count_; }
    int64_t peak_live() const { return peak_live_; }
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
};

} // namespace emm::pool
