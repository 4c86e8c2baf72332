// The size that the program asked for, of a slot or block that it holds; 0 while it holds nothing.
// The thread that frees an address reads this without a lock.
#pragma once

#include <atomic>
#include <cstdint>

namespace emm::pool {

template <class Word> class Loan {
public:
    Loan() = default;
    Loan(const Loan &other) : word_(other.word_.load(std::memory_order_relaxed)) {}
    Loan &operator=(const Loan &other) {
        put(other.word_.load(std::memory_order_relaxed));
        return *this;
    }

    void begin(uint64_t size) { put(Word(size << 1)); }
    void end() { put(0); }
    // Marks that its free needs more than a magazine: the allocation has further uses, is a
    // graph's, or is exported.
    void mark_special() { put(word_.load(std::memory_order_relaxed) | special_bit); }
    void end_special() { begin(size()); }

    uint64_t size() const { return word_.load(std::memory_order_relaxed) >> 1; }
    // The size; 0 if the free is special or there is nothing to free.
    uint64_t plain_size() const {
        const Word word = word_.load(std::memory_order_relaxed);
        return word & special_bit ? 0 : word >> 1;
    }

private:
    static constexpr Word special_bit = 1;
    void put(Word word) { word_.store(word, std::memory_order_relaxed); }

    std::atomic<Word> word_{0};
};

} // namespace emm::pool
