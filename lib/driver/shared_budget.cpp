#include "driver/shared_budget.h"

#include <algorithm>

namespace emm::driver {
namespace {

constexpr uint64_t step = (uint64_t(32) << 20) / shared_unit;
constexpr uint64_t shares_of_room = 16; // a step is at most this fraction of the room

constexpr unsigned number_bits = 22, member_bits = 9;
constexpr uint32_t number_mask = (1u << number_bits) - 1;
static_assert(1u << member_bits == most_members);

uint32_t after(uint32_t number) {
    return (number + 1) & number_mask;
}

// The last change of a device's word.
struct Word {
    uint32_t taken;
    uint32_t number;
    unsigned member;
    bool clears;
};
uint64_t packed(const Word &word) {
    return uint64_t(word.taken) << 32 | uint64_t(word.clears) << (number_bits + member_bits) |
           uint64_t(word.member) << number_bits | word.number;
}
Word word_of(uint64_t bits) {
    return {uint32_t(bits >> 32), uint32_t(bits) & number_mask,
            unsigned(bits >> number_bits) & (most_members - 1),
            (bits >> (number_bits + member_bits) & 1) != 0};
}

// Units with the number of a change, modulo 2^32: a slot's holding after that change, or the slot's
// intent.
struct Numbered {
    uint32_t units;
    uint32_t number;
};
uint64_t packed_numbered(Numbered value) {
    return uint64_t(value.units) << 32 | value.number;
}
Numbered numbered(uint64_t bits) {
    return {uint32_t(bits >> 32), uint32_t(bits)};
}

// Completes the word's change in the slot, unless that has happened already.
void finish(SharedDevice &device, const Word &word) {
    SharedSlot &slot = device.slots[word.member];
    uint64_t before = slot.holding.load();
    const Numbered held = numbered(before);
    if (after(held.number) != word.number) {
        return;
    }
    const Numbered intent = numbered(slot.intent.load());
    if (word.clears || intent.number == word.number) {
        const uint32_t now = word.clears ? 0 : held.units + intent.units;
        slot.holding.compare_exchange_strong(before, packed_numbered({now, word.number}));
    }
}

// One attempt to replace the word `bits`.
bool advance(SharedDevice &device, uint64_t bits, const Word &next) {
    const bool done = device.word.compare_exchange_strong(bits, packed(next));
    if (done) {
        finish(device, next);
    }
    return done;
}

// `decide` gets the units taken and the member's holding, and returns by how much the holding
// changes; 0: not at all.
template <class Decide> int64_t change(SharedDevice &device, unsigned member, Decide decide) {
    SharedSlot &slot = device.slots[member];
    for (;;) {
        const uint64_t bits = device.word.load();
        const Word word = word_of(bits);
        finish(device, word);
        const Numbered held = numbered(slot.holding.load());
        const int64_t units = decide(word.taken, held.units);
        if (units == 0) {
            return 0;
        }
        const Word next = {uint32_t(word.taken + units), after(held.number), member, false};
        slot.intent = packed_numbered({uint32_t(units), next.number});
        if (advance(device, bits, next)) {
            return units;
        }
    }
}

} // namespace

uint64_t units_to_take(uint64_t missing, uint64_t taken, uint64_t bound) {
    const uint64_t room = taken < bound ? bound - taken : 0;
    return missing > room ? 0 : std::max(missing, std::min(step, room / shares_of_room));
}

uint64_t units_to_return(uint64_t unused) {
    return unused > 2 * step ? unused - step : 0;
}

SharedDevice *row_of(SharedState &state, const Uuid &uuid, uint64_t bytes) noexcept {
    const uint64_t key = (uuid[0] ^ (uuid[1] << 31 | uuid[1] >> 33)) | 1;
    for (SharedDevice &row : state.devices) {
        uint64_t found = 0;
        const bool is_new = row.key.compare_exchange_strong(found, key);
        if (is_new || found == key) {
            row.uuid[0] = uuid[0];
            row.uuid[1] = uuid[1];
            row.bytes = bytes;
            return &row;
        }
    }
    return nullptr;
}

BoundInForce bound_in_force(const SharedState &state, const SharedDevice &device) noexcept {
    BoundInForce found;
    uint64_t first = UINT64_MAX;
    for (unsigned member = 0; member < slots_in_use(state); member++) {
        const uint64_t ticket = state.members[member].ticket.load();
        const uint64_t its = device.slots[member].bound.load();
        if (ticket == 0 || its == 0) {
            continue;
        }
        found.is_of_all = found.is_of_all && (found.bytes == 0 || its == found.bytes);
        if (ticket < first) {
            first = ticket;
            found.bytes = its;
            found.member = member;
        }
    }
    return found;
}

unsigned slots_in_use(const SharedState &state) noexcept {
    return unsigned(std::min<uint64_t>(state.members_ever.load(), most_members));
}

uint64_t units_taken(const SharedDevice &device) noexcept {
    return word_of(device.word.load()).taken;
}

uint64_t units_held(const SharedDevice &device, unsigned member) noexcept {
    return numbered(device.slots[member].holding.load()).units;
}

bool hold(SharedDevice &device, unsigned member, uint64_t units, uint64_t bound,
          bool takes_reserve) noexcept {
    const auto decide = [&](uint64_t taken, uint64_t held) {
        const uint64_t missing = units - std::min(units, held);
        const uint64_t most = missing == 0 ? 0 : units_to_take(missing, taken, bound);
        return int64_t(takes_reserve ? most : std::min(most, missing));
    };
    return units_held(device, member) >= units || change(device, member, decide) != 0;
}

void give_back(SharedDevice &device, unsigned member, uint64_t units) noexcept {
    if (units != 0) {
        change(device, member, [&](uint64_t, uint64_t) { return -int64_t(units); });
    }
}

void count(SharedDevice &device, unsigned member, uint64_t units) noexcept {
    change(device, member,
           [&](uint64_t, uint64_t held) { return units > held ? int64_t(units - held) : 0; });
}

// The word is read before is_dead() is called, because a new owner's first change would alter the
// word.
bool take_back(SharedDevice &device, unsigned member, const std::function<bool()> &is_dead) {
    for (;;) {
        const uint64_t bits = device.word.load();
        const Word word = word_of(bits);
        finish(device, word);
        const Numbered held = numbered(device.slots[member].holding.load());
        if (held.units == 0 || !is_dead()) {
            return false;
        }
        if (advance(device, bits, {word.taken - held.units, after(held.number), member, true})) {
            return true;
        }
    }
}

} // namespace emm::driver
