#pragma once

#include "clock.h"
#include "schedule.h"
#include "share.h"

#include <cuda.h>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace simcuda {

struct Device;
struct Stream;

// Free memory of a pool; its next owner must be ordered after `clock`.
struct Vacancy {
    uint64_t size = 0;
    Clock clock;
    std::vector<OpRef> work;
};

// A stream-ordered pool. It takes segments of device memory and hands out parts of them. When a
// part that was freed on one stream goes to another stream, the pool orders the second behind the
// first.
struct Pool {
    static constexpr uint64_t segment_size = uint64_t(32) << 20;

    struct Part {
        uint64_t offset = 0;
        Vacancy from; // its former vacancy: an order to keep
    };

    CUmemoryPool handle = nullptr;
    uint64_t id = 0;
    Device *device = nullptr;
    Store *store = nullptr;
    unsigned handle_types = 0;
    bool is_default = false, dying = false;
    bool imported = false;
    unsigned opened = 0; // allocations of an imported pool that are open here
    uint64_t ticket = 0; // the place of an exported pool's ticket

    std::map<uint64_t, uint64_t> segments; // by offset
    std::map<uint64_t, Vacancy> vacancies; // by offset, never across segments
    std::set<std::pair<uint64_t, uint64_t>> by_size;
    std::map<CUmemPool_attribute, int> settings;
    uint64_t threshold = 0;
    uint64_t most = ~uint64_t(0); // the most that it reserves
    uint64_t access = 0;          // other devices, a bit for each
    uint64_t reserved = 0, reserved_high = 0, used = 0, used_high = 0, blocks = 0;

    Pool() = default;
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    std::optional<Part> take(uint64_t size, const Stream &stream);
    void give(uint64_t offset, uint64_t size, Clock clock, std::vector<OpRef> work);
    // Returns whole segments to the device until no more than `keep` bytes are reserved.
    void trim(uint64_t keep);

private:
    void ask_about(uint64_t size) const;
    std::optional<uint64_t> choose(uint64_t size, const Stream &stream, bool must_wait) const;
    bool grow(uint64_t size);
    Part carve(uint64_t offset, uint64_t size);
    void insert(uint64_t offset, Vacancy vacancy);
    Vacancy erase(uint64_t offset);
};

Pool &find_pool(CUmemoryPool handle);
Pool *make_pool(Device &device, unsigned handle_types);
unsigned handle_types_of(const Pool &pool);

// Frees pool memory at once: the host knows that its use has ended.
void free_pooled(CUdeviceptr start);

// After the host has waited, pools keep no more than their thresholds.
void trim_pools();

} // namespace simcuda
