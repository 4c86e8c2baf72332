// The processes of a group count here what they have taken of each device. All of them map it.
//
// No lock is held over anything: a process may be killed or stopped between any two instructions.
// A device has one word, with what all have taken and which change was the last. A change is
//
//   intent    the member writes how much, and the change's number, into its slot
//   word      a compare-and-swap adds it to what is taken, and names member and number
//   holding   anyone who finds the word so adds the intent to what the slot holds, if its number is
//             the one before; only then does the next change begin
//
// So a change has happened once the word says so, and else not at all. Any process may finish it.
// All holdings together are what is taken. Any member may take back the holding of a dead one, by
// one such change without an intent.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

namespace emm::driver {

inline constexpr uint64_t shared_unit = uint64_t(64) << 10; // bytes; all counts are of these
inline constexpr unsigned most_members = 512, most_shared_devices = 32;

using Uuid = std::array<uint64_t, 2>;

// The zero bytes of a new file are an empty group.
struct SharedMember {
    std::atomic<uint64_t> ticket; // in the order of joining; 0: none
    std::atomic<uint64_t> pid;    // as the process sees itself
    std::atomic<uint64_t> random; // of its socket's name (monitor/protocol.h); 0: it has none
};
struct SharedSlot {
    std::atomic<uint64_t> holding, intent;
    std::atomic<uint64_t> bound; // as the member says it; 0: none
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
    std::atomic<uint64_t> members_ever; // slots from there on were never used
    alignas(64) SharedMember members[most_members];
    SharedDevice devices[most_shared_devices];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t units_of(uint64_t bytes) {
    return bytes / shared_unit + (bytes % shared_unit != 0);
}

// How many units a member takes that lacks `missing`: a step, which shrinks as the room does, so
// that members' reserves leave most of it to all. 0: there is no room.
uint64_t units_to_take(uint64_t missing, uint64_t taken, uint64_t bound);

// How many it gives back that has `unused`: all but a step, once two are idle.
uint64_t units_to_return(uint64_t unused);

// The row of a device; NULL: all rows are other devices'.
SharedDevice *row_of(SharedState &state, const Uuid &uuid, uint64_t bytes) noexcept;

// The bound that is in force: that of the member which joined first. 0: none has one.
uint64_t bound_in_force(const SharedState &state, const SharedDevice &device) noexcept;

uint64_t units_taken(const SharedDevice &device) noexcept;
uint64_t units_held(const SharedDevice &device, unsigned member) noexcept;

// The member holds at least `units` then; it takes more if it has to and the bound leaves room,
// else false. One thread of one process at a time calls these two for a member.
bool hold(SharedDevice &device, unsigned member, uint64_t units, uint64_t bound) noexcept;
void give_back(SharedDevice &device, unsigned member, uint64_t units) noexcept;

// Gives back all that a member holds which is_dead() says to have ended. It is asked again for each
// attempt, because the slot may have a new owner. False: it holds nothing, or is alive.
bool take_back(SharedDevice &device, unsigned member, const std::function<bool()> &is_dead);

unsigned slots_in_use(const SharedState &state) noexcept;

} // namespace emm::driver
