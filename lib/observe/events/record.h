#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace emm::observe {

// The type of an event. A free's type is that of its allocation plus one.
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
    context, // begins to serve: `address` is the free memory of its device, `size` the total
    pool,    // a named pool begins to serve: set_pool
};

// In the order of EventType; contexts have no row in the log.
inline constexpr std::string_view event_names[] = {
    "Alloc", "Free",          "Alloc Host",   "Free Host", "Pin",
    "Unpin", "Alloc Managed", "Free Managed", "Reset",     "Retire",
    "Trim",  "Defer Begin",   "Defer End",    "",          "Pool"};

inline constexpr bool is_allocation(EventType type) noexcept {
    return type < EventType::reset && static_cast<unsigned>(type) % 2 == 0;
}

inline constexpr bool is_free(EventType type) noexcept {
    return type < EventType::reset && static_cast<unsigned>(type) % 2 == 1;
}

// One event as recorded; members are in the order of a cache line.
struct EventRecord {
    uint64_t start, end; // by event_ticks()
    uint64_t address, size, stream;
    uint64_t caller;  // a return address
    uint32_t context; // the CUDA context's id; for a named pool a number from first_pool_number on
    int32_t status;
    uint16_t device;
    EventType type;
    uint8_t late;    // a free that did nothing, because its context was gone
    uint32_t python; // number of its Python calls (PythonCalls); 0: unknown

    // The moment at which memory changed hands. No thread has an address before the end of its
    // allocation, or after the start of its free. So, in this order, the log never shows an address
    // twice.
    uint64_t moment() const noexcept { return is_allocation(type) ? end : start; }
};
static_assert(sizeof(EventRecord) == 64);

inline constexpr uint32_t first_pool_number = 0x80000000;

// A pool's name, which lies from `address` to `caller`, and the id of its CUDA context.
inline constexpr size_t longest_pool_name = 31;
void set_pool(EventRecord &record, std::string_view name, uint32_t cuda_context) noexcept;
std::string_view pool_name(const EventRecord &record) noexcept;

} // namespace emm::observe
