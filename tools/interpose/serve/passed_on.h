// What the program takes of the driver's memory past the plugin: counted and passed on. Any thread
// may call.
#pragma once

#include <cstdint>
#include <cuda.h>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace emm::run {

enum class Passed : uint8_t {
    physical,        // cuMemCreate
    mapped,          // cuMemMap
    array,           // cuArrayCreate, cuArray3DCreate
    mipmapped_array, // cuMipmappedArrayCreate
    graph_node,      // cuGraphAddMemAllocNode
    external,        // cuImportExternalMemory
};
constexpr size_t passed_kinds = 6;

struct Tally {
    uint64_t live = 0;  // how many there are
    uint64_t bytes = 0; // and how large they are together
    uint64_t peak_bytes = 0;
    uint64_t made = 0; // how many there ever were

    void add(uint64_t size);
    void remove(uint64_t size);
};

// Of the driver, in the fields of its descriptor: how many bytes its elements take, without what
// the driver adds. 0 for memory that is mapped later, and for formats that are not known here.
uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR &descriptor);
uint64_t mipmapped_bytes(const CUDA_ARRAY3D_DESCRIPTOR &descriptor, unsigned levels);

class PassedOn {
public:
    struct Item {
        uint64_t bytes = 0;
        CUcontext context = nullptr; // with which it ends; NULL: with none
        unsigned references = 1;
        uint64_t tracked = 0; // the id that emm_track_driver_memory gave
    };

    // By handle or address. What there is no room to remember is not counted.
    void add(Passed kind, uint64_t key, const Item &item) noexcept;
    void retain(Passed kind, uint64_t key); // one reference more
    // One reference less. The answer is what it was, for put_back; `references` 0: nothing is known
    // there.
    Item release(Passed kind, uint64_t key);
    void put_back(Passed kind, uint64_t key, const Item &item) noexcept;
    using Items = std::map<uint64_t, Item>;
    Items release_range(Passed kind, uint64_t begin, uint64_t size); // all that begin in it
    std::vector<Item> end(CUcontext context);                        // those that end with it

    Tally tally(Passed kind) const;
    // One line of "NAME live=N bytes=N peak_bytes=N made=N" for each kind that was there, between
    // semicolons; "" if there was none.
    std::string line() const;

private:
    Items::iterator remove(size_t kind, Items::iterator item); // the mutex is held

    mutable std::mutex mutex_;
    Items items_[passed_kinds];
    Tally tallies_[passed_kinds];
};

} // namespace emm::run
