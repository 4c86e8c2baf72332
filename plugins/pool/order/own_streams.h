// The managers that have met a thread's own stream (EMM_STREAM_PER_THREAD). When the thread ends,
// what it freed there gets its event.
#pragma once

#include "registry.h"
#include "stream_order.h"

#include <algorithm>

namespace emm::pool {

class OwnStreams {
public:
    void add(uint64_t manager_number) noexcept {
        try {
            if (std::find(numbers_.begin(), numbers_.end(), manager_number) == numbers_.end()) {
                numbers_.push_back(manager_number);
            }
        } catch (const std::bad_alloc &) { // a context event will cover what it leaves
        }
    }
    void end() {
        for (const uint64_t number : numbers_) {
            if (const registry::Visit manager{number}) {
                manager->end_own_stream();
            }
        }
    }

private:
    std::vector<uint64_t> numbers_;
};

} // namespace emm::pool
