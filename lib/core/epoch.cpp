#include "core/epoch.h"

#include <chrono>
#include <thread>

namespace emm::core {

void Epoch::close() noexcept {
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    for (const Line &line : inside_) {
        for (int looks = 0; line.count.load(std::memory_order_seq_cst) != 0; ++looks) {
            if (looks < 100) {
                std::this_thread::yield();
            } else {
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            }
        }
    }
}

void Epoch::open() noexcept {
    epoch_.fetch_add(1, std::memory_order_release);
}

} // namespace emm::core
