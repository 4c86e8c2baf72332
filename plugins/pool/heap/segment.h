// One piece of device memory from the driver, and who owns each part of it.
#pragma once

#include "list.h"
#include "owners.h"
#include "pieces.h"

#include <atomic>
#include <cstdint>
#include <vector>

namespace emm::pool {

struct Block;
struct Slab;

// The use of a segment. Small blocks would pin large segments, so they are kept out of those. The
// third zone is apart from both: dedicated (growth=segment), one allocation at a time, uncut;
// spilled (growth=vmm), host memory.
enum class Zone : uint8_t { large, small, dedicated, spilled = dedicated };
constexpr unsigned zones = 3;

constexpr uint64_t granule = 512;                // every size and address is a multiple of this
constexpr uint64_t segment_granule = 2ull << 20; // the driver's unit and alignment
constexpr uint64_t small_limit = 1 << 20;        // the largest size in the small zone
constexpr uint64_t record_alignment = 256;       // of blocks' records
// The distance of marks: how far back an address is looked for.
constexpr uint64_t cover_granule = 64ull << 20;

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

struct Segment {
    Segment(uint64_t driver_address, uint64_t driver_size, uint64_t first, uint64_t bytes)
        : driver_base(driver_address), driver_bytes(driver_size), base(first), size(bytes),
          owners(bytes / granule),
          covers((first + bytes - 1) / cover_granule - first / cover_granule + 1) {}

    bool paged() const { return pieces.has_range(); }
    bool spilled() const { return pieces.spilled(); }
    uint64_t end() const { return base + size; }
    uint64_t index(uint64_t address) const { return (address - base) / granule; }
    uintptr_t owner(uint64_t address) const { return owners.at(index(address)); }
    void own(uint64_t address, uintptr_t owner) { owners.set(index(address), owner); }

    Block *&cover(uint64_t mark) { return covers[mark / cover_granule - base / cover_granule]; }
    const Block *cover(uint64_t mark) const {
        return covers[mark / cover_granule - base / cover_granule];
    }

    const uint64_t driver_base; // as returned by cuMemAlloc, for cuMemFree
    const uint64_t driver_bytes;
    Zone zone = Zone::large;
    std::atomic<bool> keeps_addresses{false}; // the driver refused to end a mapping in it
    bool refused = false;                     // when it was given up, the driver refused a part
    uint64_t device_base = 0; // of pinned memory that is mapped: the device's name for driver_base
    const uint64_t base;      // the part in use: aligned to segment_granule
    const uint64_t size;

    // For the granule where a taken block begins, the block, unless the map of pages leads to it.
    // For the granule where a slot begins, the slot, marked by bit 0. 0 for all others. Read
    // without the lock.
    Owners owners;
    // For each mark, a multiple of cover_granule, the last block handed out that held the byte
    // there; it may be stale.
    std::vector<Block *> covers;
    Pieces pieces; // of growth=vmm: the memory behind the addresses
    Block *first = nullptr;
    Link<Segment> all;
    Link<Segment> whole; // one free block spans it
};

} // namespace emm::pool
