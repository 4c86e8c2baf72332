// How much longer the driver takes for moves than on a quiet machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace emm::pool {

// The driver serves all processes and devices of a machine one after the other, so beside busy
// neighbours a move can take a hundred times as long.
class DriverPace {
public:
    void note(uint64_t expected_ns, uint64_t taken_ns) {
        latest_[next_++ % latest_.size()] = taken_ns / std::max<uint64_t>(expected_ns, 1);
    }
    // How many times as long as expected each of the latest four moves took, at least; 1 for less
    // than 32 times. So all quiet machines use the same memory, slow ones too, and also where the
    // thread had no processor during a move.
    uint64_t factor() const {
        const uint64_t least = *std::min_element(latest_.begin(), latest_.end());
        return least < 32 ? 1 : least;
    }

private:
    std::array<uint64_t, 4> latest_{};
    unsigned next_ = 0;
};

} // namespace emm::pool
