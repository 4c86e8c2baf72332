// The allocations that the program has got from emm and not given back, by address. Any thread may
// call.
#pragma once

#include "driver_regions.h"
#include "fence/spin_lock.h"
#include "graph_figures.h"

#include <emm/emm.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace emm::run {

// How the program asked for the allocation.
enum class Kind : uint8_t {
    device = 1,
    ordered = 2, // on a stream
    managed = 4,
    pinned = 8,
    registered = 16, // the program's own memory
    captured = 32,   // of a stream that captured: a graph's memory, used in each launch
};
constexpr uint32_t on_device = uint32_t(Kind::device) | uint32_t(Kind::ordered) |
                               uint32_t(Kind::managed) | uint32_t(Kind::captured);

struct alignas(16) Allocation {
    uint64_t address = 0; // 0: none
    uint64_t size = 0;    // as the program asked for
    emm_context *context = nullptr;
    uint64_t id = 0;    // no other allocation of the process has it
    uint32_t flags = 0; // as the program gave them
    Kind kind = Kind::device;
    bool freed = false;          // by the program; a graph's may be the program's again
    bool launched = false;       // of a graph: the program has had it
    bool exported = false;       // Sharing has an export of it
    emm_context *pool = nullptr; // emm's for a pool of the program's own; NULL: the context itself

    emm_context *manager() const { return pool ? pool : context; }
    // Whether the allocation is the program's. A graph's allocation is so only between a launch and
    // the next free.
    bool is_programs() const { return kind != Kind::captured || (launched && !freed); }
    bool is_one_of(uint32_t kinds) const { return (uint32_t(kind) & kinds) != 0; }
};

// Names one allocation, even after its address has become another allocation's.
struct AllocationName {
    uint64_t address = 0;
    uint64_t id = 0;
    bool operator==(const AllocationName &) const = default;
};

// An address with its bits spread: they select the shard, and the place in the shard to look first.
struct SpreadAddress {
    static constexpr unsigned shard_bits = 6;

    explicit SpreadAddress(uint64_t its_address) : address(its_address) {
        const uint64_t product = address * 0x9e3779b97f4a7c15u;
        bits = product ^ (product >> 32);
    }
    size_t shard() const { return bits % (1 << shard_bits); }
    size_t place() const { return bits >> shard_bits; }

    uint64_t address, bits;
};

// The last freed addresses, each until emm or the driver gives it out again. A second free by the
// program must not reach the driver, because the plugin may still have memory there. The lock of an
// address's shard guards its entry.
class FreedAddresses {
public:
    void remember(SpreadAddress at) { slot_of(at) = {at.address, regions_.now()}; }
    void forget(SpreadAddress at) {
        Slot &slot = slot_of(at);
        if (slot.address == at.address) {
            slot.address = 0;
        }
    }
    bool has(SpreadAddress at) {
        const Slot &slot = slot_of(at);
        return slot.address == at.address && at.address != 0 &&
               !regions_.is_given_since(slot.moment, at.address);
    }

    // Needs no lock: the driver itself has given [address, address + size) to the program.
    void forget_within(uint64_t address, uint64_t size) noexcept { regions_.add(address, size); }

private:
    static constexpr size_t slots = 65536;
    static_assert(slots % (1 << SpreadAddress::shard_bits) == 0, "a slot is of one shard");

    struct Slot {
        uint64_t address = 0; // 0: none
        uint64_t moment = 0;  // of DriverRegions
    };
    Slot &slot_of(SpreadAddress at) { return slots_[at.bits % slots]; }

    Slot slots_[slots] = {};
    DriverRegions regions_;
};

// A part of the table, with a lock of its own: open addressing, at most three quarters full. Shards
// share no pair of cache lines, because a processor fetches both at once.
class alignas(128) AllocationShard {
public:
    static constexpr size_t shards = 1 << SpreadAddress::shard_bits;

    // Gives the allocation an id of its own: modulo the number of shards, ids of different shards
    // differ. False: no memory for the record.
    bool insert(SpreadAddress at, uint64_t size, emm_context *context, uint32_t flags, Kind kind,
                emm_context *pool, FreedAddresses &freed) noexcept;
    void put_back(const Allocation &allocation, FreedAddresses &freed) noexcept;
    void forget_at(uint64_t address);
    Allocation find(SpreadAddress at, FreedAddresses &freed);
    // As in Allocations. `id` 0: any allocation at that address.
    Allocation take(SpreadAddress at, uint32_t kinds, uint64_t id, FreedAddresses &freed);
    Allocation remove(AllocationName name, FreedAddresses &freed);
    Allocation set_launched(AllocationName name); // none: it is the program's already
    Allocation end_graph(AllocationName name, FreedAddresses &freed);
    bool set_exported(uint64_t address, uint64_t id);
    template <class Predicate> void remove_if(Predicate predicate);
    template <class Visit> void each(Visit visit);

private:
    Allocation *find_named(AllocationName name); // NULL: it is gone
    Allocation remove_slot(size_t slot, SpreadAddress at, FreedAddresses &freed);
    size_t home_of(SpreadAddress at) const { return at.place() & mask_; }
    size_t slot_of(SpreadAddress at) const; // its slot, or the slot it would get
    bool grow() noexcept;
    Allocation *make_room(SpreadAddress at) noexcept; // NULL: no memory
    void close_gap(size_t gap);

    SpinLock lock_;
    uint64_t last_id_ = 0;
    std::vector<Allocation> slots_ = std::vector<Allocation>(1); // a power of two
    size_t mask_ = 0;                                            // one less
    size_t count_ = 0, most_ = 0; // the number of records, and the most before the table grows
};

class Allocations {
public:
    // Gives the allocation its id. False: no memory for the record, and nothing has changed.
    bool insert(const Allocation &made) noexcept {
        return insert(made.address, made.size, made.context, made.flags, made.kind, made.pool);
    }

    // The memory that begins at `address`. `address` 0 in the answer: the program has no memory
    // there; `freed`: it had, as far as emm remembers.
    Allocation find(uint64_t address);

    // Like find(), and removes the memory if it is of one of these kinds. Memory of a graph that
    // the program has got stays, and is `freed` until the next launch. The answer is the record as
    // it was.
    Allocation take(uint64_t address, uint32_t kinds);
    Allocation take(AllocationName name);

    // The same, a graph's too.
    Allocation remove(AllocationName name);

    // Memory of a graph: a launch gives it to the program. Once the graph is gone, memory that the
    // program has is like other memory of a stream; other memory of the graph is removed, and is
    // the answer.
    void set_launched(AllocationName name);
    Allocation end_graph(AllocationName name);

    // The driver itself has given [address, address + size) to the program. Removes the allocations
    // that begin there, also memory of a graph that the program has freed, and memory of a context
    // that is ending. Addresses within no longer count as freed.
    void forget_within(uint64_t address, uint64_t size);

    // Puts back memory that was taken and could not be freed.
    void put_back(const Allocation &allocation) noexcept;

    // Marks an allocation as exported. False: the program has freed it.
    bool set_exported(uint64_t address, uint64_t id);

    // Memory of one of these kinds that has `address` within it. Searches all records: for plugins
    // that cannot tell, and for host memory, of which no plugin can.
    Allocation find_around(uint64_t address, uint32_t kinds);

    void forget(const emm_context *context); // the context ends, with all its memory

    GraphFigures graph_figures; // of memory that launches have given to the program

private:
    // The parameters stay in registers. A record built in memory would be read before its writes
    // are complete, which is slow.
    bool insert(uint64_t address, uint64_t size, emm_context *context, uint32_t flags, Kind kind,
                emm_context *pool) noexcept;
    AllocationShard &shard_of(SpreadAddress at) { return shards_[at.shard()]; }
    AllocationShard &shard_of(uint64_t address) { return shard_of(SpreadAddress(address)); }

    AllocationShard shards_[AllocationShard::shards];
    FreedAddresses freed_;
};

} // namespace emm::run
