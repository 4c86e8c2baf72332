// `host_max`: one bound for the pinned memory of the program and the copy of a pause. Any thread
// may call, with the pool's lock or without.
#pragma once

#include <atomic>
#include <cstdint>

namespace emm::pool {

class PinnedBound {
public:
    explicit PinnedBound(uint64_t most) : most_(most) {}

    // Called before the driver is asked, so that the bound holds whatever other threads do
    // meanwhile. False: there is no room.
    bool claim(uint64_t bytes) {
        uint64_t held = held_.load();
        do {
            if (bytes > most_ - held) {
                return false;
            }
        } while (!held_.compare_exchange_weak(held, held + bytes));
        return true;
    }
    void give_back(uint64_t bytes) { held_ -= bytes; }
    uint64_t held() const { return held_.load(); }

private:
    const uint64_t most_;
    std::atomic<uint64_t> held_{0};
};

} // namespace emm::pool
