#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

namespace emm::tool {

// The same numbers from the same seed everywhere: the engine is fixed by the C++ standard, whose
// distributions are not, so these are ours and use whole numbers only.
class Random {
public:
    explicit Random(uint64_t seed) : engine_(seed) {}

    // 0 to limit - 1.
    uint64_t below(uint64_t limit) { return engine_() % limit; }
    // Both ends included.
    uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
    bool one_in(uint64_t n) { return below(n) == 0; }
    bool percent(uint64_t chance) { return below(100) < chance; }

    // From low to high, each doubling as likely as every other.
    uint64_t spread(uint64_t low, uint64_t high) {
        uint64_t doublings = 0;
        while (low << (doublings + 1) <= high) {
            doublings++;
        }
        const uint64_t begin = low << below(doublings + 1);
        return between(begin, std::min(high, 2 * begin - 1));
    }

private:
    std::mt19937_64 engine_;
};

} // namespace emm::tool
