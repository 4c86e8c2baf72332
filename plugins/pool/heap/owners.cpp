#include "owners.h"

#include <algorithm>
#include <bit>
#include <unistd.h>

namespace emm::pool {
namespace {

unsigned bits_of_a_part() {
    return unsigned(std::bit_width(uint64_t(sysconf(_SC_PAGESIZE)) / sizeof(uintptr_t))) - 1;
}

// How many of `parts` keep their host memory: the recent number in use, a quarter more, and 1024 or
// a quarter of all, which is 1/256 of the addresses they stand for. So blocks that come and go
// cost no system call and no page fault, also where their places change, as those of unordered
// blocks do while their memory is pending.
constexpr uint64_t kept_parts_limit(uint64_t parts, uint64_t used_of_late) {
    return std::max<uint64_t>(1024, parts / 4) + used_of_late + used_of_late / 4;
}

// If so many parts have become empty, the recent number in use falls by one: so a program that now
// uses less is noticed.
constexpr uint32_t empty_for_one_less = 16;

} // namespace

Owners::Owners(uint64_t granules)
    : owners_(granules), part_bits_(bits_of_a_part()), parts_((granules >> part_bits_) + 1) {}

// An empty part is not read: the kernel would map a page of zeros for it, and replacing that at the
// first write interrupts every processor that runs the process.
void Owners::set(uint64_t index, uintptr_t owner) {
    Part &part = parts_[index >> part_bits_];
    const bool had = part.used > 0 && owners_[index].load(std::memory_order_relaxed) != 0;
    if (owner == 0 && !had) {
        return;
    }
    owners_[index].store(owner, std::memory_order_release);
    if (owner != 0 && !had && part.used++ == 0) {
        idle_parts_ -= part.queued;
        used_parts_++;
        used_of_late_ = std::max(used_of_late_, used_parts_);
    } else if (owner == 0 && --part.used == 0) {
        used_parts_--;
        idle_parts_++;
        queue(index >> part_bits_);
        for (int i = 0; i < 2 && has_too_many(); i++) { // few at a time, so that no pause is long
            discard_first();
        }
    }
}

bool Owners::has_too_many() const {
    return used_parts_ + idle_parts_ > kept_parts_limit(parts_.size(), used_of_late_);
}

void Owners::queue(uint64_t number) {
    if (++emptied_ % empty_for_one_less == 0 && used_of_late_ > used_parts_) {
        used_of_late_--;
    }
    if (parts_[number].queued) {
        return;
    }
    parts_[number].queued = 1;
    parts_[number].next = none;
    const auto added = uint32_t(number + 1);
    (last_ == none ? first_ : parts_[last_ - 1].next) = added;
    last_ = added;
}

void Owners::discard_first() {
    const uint64_t number = first_ - 1;
    Part &part = parts_[number];
    first_ = part.next;
    last_ = first_ == none ? none : last_;
    part.queued = 0;
    if (part.used == 0) {
        idle_parts_--;
        owners_.discard(number << part_bits_, uint64_t(1) << part_bits_);
    }
}

} // namespace emm::pool
