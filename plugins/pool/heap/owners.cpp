#include "owners.h"

#include <bit>
#include <unistd.h>

namespace emm::pool {
namespace {

unsigned bits_of_a_part() {
    return unsigned(std::bit_width(uint64_t(sysconf(_SC_PAGESIZE)) / sizeof(uintptr_t))) - 1;
}

// How many empty parts keep their host memory for what begins there next: 1 MiB of it, and a
// quarter of what is in use, so that blocks which come and go at the same places cost no call of
// the system.
constexpr uint64_t most_kept(uint64_t used_parts) {
    return 1024 + used_parts / 4;
}

} // namespace

Owners::Owners(uint64_t granules)
    : owners_(granules), part_bits_(bits_of_a_part()), parts_((granules >> part_bits_) + 1) {}

// An empty part is not read: the kernel would show a page of zeros for it, and to replace that at
// the first write interrupts every processor that runs the process.
void Owners::set(uint64_t index, uintptr_t owner) {
    Part &part = parts_[index >> part_bits_];
    const bool had = part.used > 0 && owners_[index].load(std::memory_order_relaxed) != 0;
    if (owner == 0 && !had) {
        return;
    }
    owners_[index].store(owner, std::memory_order_release);
    if (owner != 0 && !had) {
        used_parts_ += part.used++ == 0;
    } else if (owner == 0 && --part.used == 0) {
        used_parts_--;
        queue(index >> part_bits_);
    }
}

void Owners::queue(uint64_t number) {
    if (parts_[number].queued) {
        return;
    }
    parts_[number].queued = 1;
    parts_[number].next = none;
    const auto added = uint32_t(number + 1);
    (last_ == none ? first_ : parts_[last_ - 1].next) = added;
    last_ = added;
    queued_parts_++;
    for (int i = 0; i < 2 && queued_parts_ > most_kept(used_parts_); i++) { // no pause is long
        discard_first();
    }
}

void Owners::discard_first() {
    const uint64_t number = first_ - 1;
    Part &part = parts_[number];
    first_ = part.next;
    last_ = first_ == none ? none : last_;
    queued_parts_--;
    part.queued = 0;
    if (part.used == 0) {
        owners_.discard(number << part_bits_, uint64_t(1) << part_bits_);
    }
}

} // namespace emm::pool
