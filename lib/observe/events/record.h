#pragma once

#include <cstdint>

namespace emm::observe {

// What happened. A free's type is that of its allocation plus one.
enum class EventType : uint8_t {
    alloc,
    free,
    host_alloc,
    host_free,
    pin,
    unpin,
    managed_alloc,
    managed_free,
    reset,
    retire,
    trim,
    defer_begin,
    defer_end,
    context, // begins to serve; `address` is the free memory of its device, `size` the total
};

inline bool is_allocation(EventType type) noexcept {
    return type < EventType::reset && static_cast<unsigned>(type) % 2 == 0;
}

inline bool is_free(EventType type) noexcept {
    return type < EventType::reset && static_cast<unsigned>(type) % 2 == 1;
}

} // namespace emm::observe
