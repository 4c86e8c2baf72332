// The memory that graphs use in each context, in the figures of cuDeviceGetGraphMemAttribute. A
// launch adds memory that it leaves to the program; a trim subtracts what the program has freed.
// Any thread may call.
#pragma once

#include <emm/emm.h>

#include <cstdint>
#include <map>
#include <mutex>

namespace emm::run {

class GraphFigures {
public:
    struct Bytes {
        uint64_t now = 0, used_high = 0, reserved_high = 0;
    };

    // A launch has given the program the allocation with that id. If host memory is short, the
    // allocation is not counted.
    void launched(uint64_t id, uint64_t address, uint64_t size,
                  const emm_context *context) noexcept;

    Bytes in(const emm_context *context);
    void forget(const emm_context *context); // the context ends
    void reset_used_high(const emm_context *context);
    void reset_reserved_high(const emm_context *context);

    // `is_freed(address, id)`: the program does not have the allocation.
    template <class IsFreed> void trim(const emm_context *context, IsFreed is_freed) {
        const std::lock_guard lock(mutex_);
        for (auto each = counted_.begin(); each != counted_.end();) {
            const auto next = std::next(each);
            if (each->second.context == context && is_freed(each->second.address, each->first)) {
                bytes_[context].now -= each->second.size;
                counted_.erase(each);
            }
            each = next;
        }
    }

private:
    struct Counted {
        uint64_t address, size;
        const emm_context *context;
    };
    std::mutex mutex_;
    std::map<uint64_t, Counted> counted_; // by id
    std::map<const emm_context *, Bytes> bytes_;
};

} // namespace emm::run
