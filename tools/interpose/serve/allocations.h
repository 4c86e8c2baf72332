// What the program has got from emm and not given back, by address. Any thread may call.
#pragma once

#include "driver_regions.h"
#include "fence/spin_lock.h"
#include "graph_figures.h"

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

struct alignas(16) Allocation {
    uint64_t address = 0; // 0: none
    uint64_t size = 0;    // as the program asked for it
    emm_context *context = nullptr;
    uint64_t id = 0;    // no other allocation of the process has it
    uint32_t flags = 0; // as the program gave them
    Kind kind = Kind::device;
    bool freed = false;          // by the program; a graph's may be the program's again
    bool launched = false;       // a graph's: the program has had it
    bool exported = false;       // Sharing has an export of it
    emm_context *pool = nullptr; // emm's for a pool of the program's own; NULL: the context itself

    emm_context *manager() const { return pool ? pool : context; }
    // Whether the program has it: a graph's only between a launch and the free after it.
    bool is_programs() const { return kind != Kind::captured || (launched && !freed); }
    bool is_one_of(uint32_t kinds) const { return (uint32_t(kind) & kinds) != 0; }
};

// One allocation, also when its address has become another one's.
struct AllocationName {
    uint64_t address = 0;
    uint64_t id = 0;
    bool operator==(const AllocationName &) const = default;
};

// An address whose bits are spread: they say which shard has it, and where to look there.
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

// The addresses that were freed last, each until it is given out again, by emm or by the driver:
// what a program frees twice must not reach the driver, whose memory the plugin may still have
// there. The lock of an address's shard guards what is known of the address.
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

// A part of the table, with a lock of its own: open addressing, at most three quarters full. No two
// share the pair of cache lines that a processor fetches at once.
class alignas(128) AllocationShard {
public:
    static constexpr size_t shards = 1 << SpreadAddress::shard_bits;

    // With an id of its own: shards differ by the remainder of division by how many there are.
    // False: there is no memory for it.
    bool insert(SpreadAddress at, uint64_t size, emm_context *context, uint32_t flags, Kind kind,
                emm_context *pool, FreedAddresses &freed) noexcept;
    void put_back(const Allocation &allocation, FreedAddresses &freed) noexcept;
    void forget_at(uint64_t address);
    Allocation find(SpreadAddress at, FreedAddresses &freed);
    // As those of Allocations. `id` 0: whatever is there.
    Allocation take(SpreadAddress at, uint32_t kinds, uint64_t id, FreedAddresses &freed);
    Allocation remove(AllocationName name, FreedAddresses &freed);
    Allocation set_launched(AllocationName name); // none: the program has it already
    Allocation end_graph(AllocationName name, FreedAddresses &freed);
    bool set_exported(uint64_t address, uint64_t id);
    template <class Predicate> void remove_if(Predicate predicate);
    template <class Visit> void each(Visit visit);

private:
    Allocation *find_named(AllocationName name); // NULL: it is no more
    Allocation remove_slot(size_t slot, SpreadAddress at, FreedAddresses &freed);
    size_t home_of(SpreadAddress at) const { return at.place() & mask_; }
    size_t slot_of(SpreadAddress at) const; // where it is, or where it would be
    bool grow() noexcept;
    Allocation *make_room(SpreadAddress at) noexcept; // NULL: no memory
    void close_gap(size_t gap);

    SpinLock lock_;
    uint64_t last_id_ = 0;
    std::vector<Allocation> slots_ = std::vector<Allocation>(1); // a power of two
    size_t mask_ = 0;                                            // one less
    size_t count_ = 0, most_ = 0; // how many there are, and may be before it grows
};

class Allocations {
public:
    // Gives the allocation its id. False: no memory for the record, and nothing has changed.
    bool insert(const Allocation &made) noexcept {
        return insert(made.address, made.size, made.context, made.flags, made.kind, made.pool);
    }

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

    GraphFigures graph_figures; // of what launches have given to the program

private:
    // In registers: a record that is put together in memory is loaded before its stores are done.
    bool insert(uint64_t address, uint64_t size, emm_context *context, uint32_t flags, Kind kind,
                emm_context *pool) noexcept;
    AllocationShard &shard_of(SpreadAddress at) { return shards_[at.shard()]; }
    AllocationShard &shard_of(uint64_t address) { return shard_of(SpreadAddress(address)); }

    AllocationShard shards_[AllocationShard::shards];
    FreedAddresses freed_;
};

} // namespace emm::run
