// The driver's memory that the program takes past the plugin, by handle or address: each item knows
// its charge of the device's account (emm_take_driver_memory). Any thread may call.
#pragma once

#include <cstdint>
#include <cuda.h>
#include <map>
#include <mutex>
#include <vector>

namespace emm::run {

enum class Passed : uint8_t {
    physical, // cuMemCreate
    mapped,   // cuMemMap: a further reference to the physical memory's charge
    pool,     // cuMemPoolCreate
    array,    // cuArrayCreate, cuArray3DCreate, cuMipmappedArrayCreate
    external, // cuImportExternalMemory
};
constexpr size_t passed_kinds = 5;

// The bytes of an array's elements, by its descriptor, without the driver's own overhead. 0 for
// memory that is mapped later, and for unknown formats.
uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR &descriptor);
uint64_t mipmapped_bytes(const CUDA_ARRAY3D_DESCRIPTOR &descriptor, unsigned levels);

class PassedOn {
public:
    struct Item {
        uint64_t charge = 0;
        CUcontext context = nullptr; // the item ends with it; NULL: with no context
        unsigned references = 1;
        CUdevice device = 0;
    };

    // An item that finds no room here stays charged.
    void add(Passed kind, uint64_t key, const Item &item) noexcept;
    bool retain(Passed kind, uint64_t key); // adds a reference; false: no item is known there
    uint64_t charge_of(Passed kind, uint64_t key) const; // 0: no item is known there
    uint64_t charge_mapped_at(uint64_t address) const;
    // Drops a reference. Gives the item as it was, for put_back; `references` 0: no item is known
    // there.
    Item release(Passed kind, uint64_t key);
    void put_back(Passed kind, uint64_t key, const Item &item) noexcept;
    using Items = std::map<uint64_t, Item>;
    Items release_range(Passed kind, uint64_t begin, uint64_t size); // all items that begin in it
    std::vector<Item> end(CUcontext context);                        // the items that end with it

private:
    mutable std::mutex mutex_;
    Items items_[passed_kinds];
};

} // namespace emm::run
