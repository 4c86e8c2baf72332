// A number that one thread changes and any may read: no locked instruction, no torn value.
#pragma once

#include <atomic>

namespace emm::pool {

template <class Number> class Gauge {
public:
    Number get() const { return value_.load(std::memory_order_relaxed); }
    void set(Number value) { value_.store(value, std::memory_order_relaxed); }
    void add(Number by) { set(Number(get() + by)); }

private:
    std::atomic<Number> value_{0};
};

} // namespace emm::pool
