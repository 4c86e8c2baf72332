#pragma once

#include "context.h"
#include "extents.h"
#include "share.h"

#include <cstdint>
#include <cuda.h>
#include <map>
#include <optional>
#include <set>

namespace simcuda {

struct Device;
struct Region;
struct Totals;

// The memory of a device that its graphs use, as driver 580 tells it: a launch counts the memory,
// and only a trim subtracts the part that no launch has left to the program. All counted memory is
// reserved.
struct GraphFigures {
    struct Part {
        CUdeviceptr start;
        uint64_t size;
    };
    std::map<uint64_t, Part> used; // by the region's id
    uint64_t used_high = 0, reserved_high = 0;

    void launched(const Region &region);
    uint64_t bytes() const;
};

struct Pool;

// A device and its memory: a sparse file, mapped whole at one range of addresses.
struct Device {
    static constexpr uint64_t granule = uint64_t(2) << 20;
    static constexpr uint64_t small_granule = 512;
    static constexpr uint64_t small_limit = uint64_t(1) << 20; // from here on whole granules

    CUdevice ordinal = 0;
    Store store;
    CUdeviceptr window = 0;
    uint64_t window_size = 0;
    uint64_t capacity = 0;
    uint64_t used = 0;
    bool of_host = false; // host memory of cuMemCreate

    CUcontext primary_handle = nullptr;
    unsigned primary_flags = 0;
    unsigned primary_users = 0;
    std::set<Context *> contexts;

    Pool *default_pool = nullptr;
    Pool *current_pool = nullptr;
    GraphFigures graph_figures;

    bool open(uint64_t bytes);

    static uint64_t rounded(uint64_t size);
    static uint64_t rounded_small(uint64_t size);
    // Real devices add this offset to the address of a block that does not fill its granules, so
    // that no program counts on more than 512 bytes of alignment.
    static uint64_t shift(uint64_t size);
    // Physical memory, as an offset in the store; any offset in its first granule gives it back.
    std::optional<uint64_t> take(uint64_t size);
    void give(uint64_t offset, uint64_t size);

private:
    Totals &totals() const;
    void punch(uint64_t offset, uint64_t size);
    void punch_small();

    Extents granules_;
    Extents small_{granule};
    uint64_t stale_ = 0; // bytes freed in small pieces since the last clean-up
};

Device *device_at(CUdevice ordinal); // NULL: no such device
Device &host_memory_of_devices();    // opened on first use
Device &find_device(CUdevice ordinal);

} // namespace simcuda
