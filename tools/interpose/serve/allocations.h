// What the program has got from emm and not given back, by address. Any thread may call.
#pragma once

#include "driver_regions.h"
#include "fence/spin_lock.h"

#include <emm/emm.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace emm::run {

// How the program asked for it.
enum class Kind : uint8_t {
    device = 1,
    ordered = 2, // on a stream
    managed = 4,
    pinned = 8,
    registered = 16, // the program's own memory
    captured = 32,   // on a stream that captured: a graph's, which uses it in each launch
};
constexpr uint32_t on_device = uint32_t(Kind::device) | uint32_t(Kind::ordered) |
                               uint32_t(Kind::managed) | uint32_t(Kind::captured);

struct Allocation {
    uint64_t address = 0; // 0: none
    uint64_t size = 0;    // as the program asked for it
    emm_context *context = nullptr;
    uint64_t id = 0;    // no other allocation of the process has it
    uint32_t flags = 0; // as the program gave them
    Kind kind = Kind::device;
    bool freed = false;    // by the program; a graph's may be the program's again
    bool launched = false; // a graph's: the program has had it
    bool exported = false; // Sharing has an export of it

    // A graph has it, and the program has not got it yet.
    bool is_waiting() const { return kind == Kind::captured && !launched; }
    bool is_one_of(uint32_t kinds) const { return (uint32_t(kind) & kinds) != 0; }
};

// One allocation, also when its address has become another one's.
struct AllocationName {
    uint64_t address = 0;
    uint64_t id = 0;
    bool operator==(const AllocationName &) const = default;
};

// A part of the table, with a lock of its own: open addressing, at most three quarters full. It
// also remembers the addresses that were freed last, until one is given out again, by emm or by the
// driver (`regions`): what a program frees twice must not reach the driver, whose memory the plugin
// may still have there.
class AllocationShard {
public:
    static constexpr size_t freed_slots = 1024;

    // With an id of its own, in which the `shards` that there are differ by the remainder. Throws
    // std::bad_alloc.
    void insert(const Allocation &allocation, size_t shard, size_t shards);
    void put_back(const Allocation &allocation);
    void forget_at(uint64_t address);
    Allocation find(uint64_t address, const DriverRegions &regions);
    // As those of Allocations. `id` 0: whatever is there.
    Allocation take(uint64_t address, uint32_t kinds, uint64_t id, const DriverRegions &regions);
    Allocation remove(AllocationName name, const DriverRegions &regions);
    void set_launched(AllocationName name);
    Allocation end_graph(AllocationName name, const DriverRegions &regions);
    bool set_exported(uint64_t address, uint64_t id);
    template <class Predicate> void remove_if(Predicate predicate);
    template <class Visit> void each(Visit visit);

private:
    struct Freed {
        uint64_t address = 0; // 0: none
        uint64_t moment = 0;  // of DriverRegions
    };

    Allocation *find_named(AllocationName name); // NULL: it is no more
    Allocation remove_slot(size_t slot, const DriverRegions &regions);
    size_t slot_of(uint64_t address) const; // where it is, or where it would be
    void grow();
    Allocation &place(const Allocation &allocation);
    Allocation none_at(uint64_t address, const DriverRegions &regions);
    void forget_freed_there(uint64_t address);
    Freed &freed_slot(uint64_t address);
    void close_gap(size_t gap);

    SpinLock lock_;
    uint64_t last_id_ = 0;
    std::vector<Allocation> slots_;
    size_t count_ = 0;
    Freed freed_[freed_slots] = {};
};

class Allocations {
public:
    // Gives the allocation its id. False: no memory for the record, and nothing has changed.
    bool insert(const Allocation &allocation) noexcept;

    // Of memory that begins at `address`; `address` 0 in the answer: there is none, and `freed`
    // tells whether there was one, as far as that is remembered.
    Allocation find(uint64_t address);

    // The same, and removes it, if it is of one of these kinds. That of a graph stays, and is
    // `freed` until the next launch, if the program has got it. The answer says how it was.
    Allocation take(uint64_t address, uint32_t kinds);
    Allocation take(AllocationName name);

    // The same, a graph's too.
    Allocation remove(AllocationName name);

    // A graph's memory: a launch gives it to the program. Once the graph is gone, what the program
    // has is like other memory of a stream; what it has not is removed, and is the answer.
    void set_launched(AllocationName name);
    Allocation end_graph(AllocationName name);

    // The driver itself has given [address, address + size) to the program: what began at `address`
    // is no more, a graph's memory that the program has freed and what a context had that is ending
    // among it; and no address within counts as freed.
    void forget_within(uint64_t address, uint64_t size);

    // Puts back what was taken and could not be freed.
    void put_back(const Allocation &allocation) noexcept;

    // Says in the record of an allocation that it is exported. False: the program has freed it.
    bool set_exported(uint64_t address, uint64_t id);

    // Memory of one of these kinds that has `address` within it, found by looking at all of it: for
    // plugins that cannot tell, and for host memory, of which none can.
    Allocation find_around(uint64_t address, uint32_t kinds);

    void forget(const emm_context *context); // which ends, with all that is in it

private:
    static size_t shard_number(uint64_t address);
    AllocationShard &shard_of(uint64_t address) { return shards_[shard_number(address)]; }

    static constexpr size_t shard_count = 64;
    AllocationShard shards_[shard_count];
    DriverRegions regions_;
};

} // namespace emm::run
