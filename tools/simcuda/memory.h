#pragma once

#include "share.h"

#include <cuda.h>
#include <map>
#include <string>
#include <vector>

namespace simcuda {

struct Context;
struct Device;
struct Pool;

// CU_MEM_LOCATION_TYPE_HOST and HOST_NUMA, which older headers lack.
constexpr auto location_host = CUmemLocationType(2), location_host_numa = CUmemLocationType(3);

// Physical memory. It lives as long as a handle, a mapping, or a descriptor in some process.
struct Physical {
    CUmemGenericAllocationHandle handle = 0; // 0 once all handles are released
    uint64_t id = 0;
    Store *store = nullptr;
    Device *device = nullptr;
    uint64_t offset = 0, size = 0;
    CUmemAllocationProp properties = {};
    unsigned references = 0, mappings = 0;
    uint64_t ticket = 0;                // the place of its ticket; 0: never exported
    bool imported = false;              // from another process, which cannot take the memory back
    std::vector<CUdeviceptr> mapped_at; // the oldest mapping first
    bool cannot_be_mapped = false;      // any more
};

enum class Kind { device, pooled, mapped, host, registered, managed, imported, graph };

// A range of addresses that work may use.
struct Region {
    CUdeviceptr start = 0;
    uint64_t size = 0;
    Kind kind = Kind::device;
    Device *device = nullptr;
    Context *context = nullptr; // NULL: the region belongs to no context
    Store *store = nullptr;
    uint64_t offset = 0;
    uint64_t id = 0;
    unsigned flags = 0;
    bool sync_memops = false; // copies and sets without a stream wait for their end
    Pool *pool = nullptr;
    Physical *physical = nullptr;
    uint64_t access = 0;                 // other devices that may use mapped memory, a bit for each
    bool host_access = false;            // given to the host, for mapped memory of the host's
    std::vector<Access> uses;            // of a mapping, each line's latest
    std::map<Context *, unsigned> opens; // of imported memory, one context for each device
    uint64_t exporter_id = 0;            // its id there

    // Memory that a graph allocates, and does not free itself, is the program's from a launch to
    // the next free. That free may come after the graph's end.
    bool freed_inside = false, live = false, outlives_graph = false;

    CUdeviceptr end() const { return start + size; }
    bool on_host() const { return kind == Kind::host || kind == Kind::registered; }
};

class Regions {
public:
    Region &add(const Region &region);
    void remove(CUdeviceptr start, const char *why);
    Region *at(CUdeviceptr start);       // the region that starts there
    Region *around(CUdeviceptr address); // the region that holds the byte
    Region *first_in(CUdeviceptr start, uint64_t size);
    std::vector<CUdeviceptr> of(Context *context) const;
    bool has_any_of(const Store &store) const;

    // "inside a block of 4096 bytes at 0x...", for messages.
    std::string describe(CUdeviceptr address);

private:
    std::map<CUdeviceptr, Region> by_start_;
    std::map<CUdeviceptr, std::pair<const char *, uint32_t>> removed_; // call, thread
};

// Bytes of one store.
struct Span {
    Store *store; // NULL: host memory that the driver does not know
    uint64_t offset;
    uint64_t size;
    CUdeviceptr address;

    std::byte *data() const {
        return store ? store->at(offset) : reinterpret_cast<std::byte *>(offset);
    }
};

// Finds the bytes. If they are in no region, the message names the argument by `what`. `pageable`:
// also accepts host memory that the driver does not know.
std::vector<Span> resolve(const char *what, CUdeviceptr address, uint64_t size, bool pageable);

// Frees a region of any kind except a mapped one, without waiting.
void free_region(CUdeviceptr start);

// Gives back a region that has ended, and whose uses are over.
void give_to_device(const Region &region);

// Reports work that may still use the bytes, and forgets their users.
void retire_bytes(Store &store, uint64_t offset, uint64_t size, CUdeviceptr address);

// Anonymous memory of the host, whole pages.
void *map_host(uint64_t size);

unsigned handle_types_of(const Physical &physical);
Physical &find_physical(CUmemGenericAllocationHandle handle);
void end_mapping(Physical &physical);
void collect_unheld(); // frees memory whose last descriptor was closed, here or in another process

} // namespace simcuda
