// The counts of a group's budget: how much of each device each process has taken. All processes of
// the group map this memory.
//
// No process takes a lock, because it may be killed or stopped between any two instructions.
// A device has one word, with the sum of all holdings and the last change. A change has three
// steps:
//
//   intent    the member writes the amount, and the change's number, into its slot
//   word      a compare-and-swap adds the amount to the sum, and names member and number
//   holding   any process that finds a new number in the word adds the intent to the slot's
//             holding, if the holding has the number before; only then the next change begins
//
// So a change takes effect with the compare-and-swap, or not at all. Any process may finish the
// third step. The sum is always the sum of all holdings. Any member may take back a dead member's
// holding, by one such change without an intent.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

namespace emm::driver {

// Bytes; all counts here are in this unit.
inline constexpr uint64_t shared_unit = uint64_t(64) << 10;
inline constexpr unsigned most_members = 512, most_shared_devices = 32;

using Uuid = std::array<uint64_t, 2>;

// The zero bytes of a new file are an empty group.
struct SharedMember {
    std::atomic<uint64_t> ticket; // in the order of joining; 0: a free slot
    std::atomic<uint64_t> pid;    // the process id within its own namespace
    // The number in its socket's name (monitor/protocol.h); 0: no socket.
    std::atomic<uint64_t> random;
};
struct SharedSlot {
    std::atomic<uint64_t> holding, intent;
    std::atomic<uint64_t> bound; // the member's own bound; 0: none
};
struct SharedDevice {
    std::atomic<uint64_t> key; // of the UUID; 0: a free row
    std::atomic<uint64_t> uuid[2];
    std::atomic<uint64_t> bytes; // of the device
    alignas(64) std::atomic<uint64_t> word;
    alignas(64) SharedSlot slots[most_members];
};
struct SharedState {
    std::atomic<uint64_t> version;
    std::atomic<uint64_t> last_ticket;
    std::atomic<uint64_t> members_ever; // slots from this one on were never used
    alignas(64) SharedMember members[most_members];
    SharedDevice devices[most_shared_devices];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t units_of(uint64_t bytes) {
    return bytes / shared_unit + (bytes % shared_unit != 0);
}

// How many units a member takes if it lacks `missing`: a step, which shrinks with the room, so that
// members' reserves leave most of the room to all. 0: there is no room.
uint64_t units_to_take(uint64_t missing, uint64_t taken, uint64_t bound);

// How many units a member returns if `unused` are idle: all but a step, once two steps are idle.
uint64_t units_to_return(uint64_t unused);

// The row of a device; NULL: all rows belong to other devices.
SharedDevice *row_of(SharedState &state, const Uuid &uuid, uint64_t bytes) noexcept;

// The bound in force: that of the member which joined first.
struct BoundInForce {
    uint64_t bytes = 0;             // 0: no member has a bound
    unsigned member = most_members; // the first that joined
    bool is_of_all = true;          // false: another bound comes into force if members leave
};
BoundInForce bound_in_force(const SharedState &state, const SharedDevice &device) noexcept;

uint64_t units_taken(const SharedDevice &device) noexcept;
uint64_t units_held(const SharedDevice &device, unsigned member) noexcept;

// Makes sure that the member holds at least `units`. If it must take more and the bound leaves no
// room, returns false. One thread of one process at a time calls these three for a member.
bool hold(SharedDevice &device, unsigned member, uint64_t units, uint64_t bound,
          bool takes_reserve = true) noexcept;
void give_back(SharedDevice &device, unsigned member, uint64_t units) noexcept;
// The driver has let the member have `units` in total: they count, whatever the bound.
void count(SharedDevice &device, unsigned member, uint64_t units) noexcept;

// If is_dead() says that a member has ended, takes back its whole holding. is_dead() is called
// again for each attempt, because the slot may have a new owner. False: the member holds nothing,
// or is alive.
bool take_back(SharedDevice &device, unsigned member, const std::function<bool()> &is_dead);

unsigned slots_in_use(const SharedState &state) noexcept;

} // namespace emm::driver
