#include "owners.h"

#include <bit>
#include <unistd.h>

namespace emm::pool {
namespace {

unsigned bits_of_a_part() {
    return unsigned(std::bit_width(uint64_t(sysconf(_SC_PAGESIZE)) / sizeof(uintptr_t))) - 1;
}

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
    if (owner != 0 && !had) {
        part.used++;
        part.touched = 1;
    } else if (owner == 0) {
        part.used--;
    }
}

// One system call for parts side by side.
void Owners::discard(uint64_t begin, uint64_t end) {
    const uint64_t last = (end - 1) >> part_bits_;
    for (uint64_t number = begin >> part_bits_; number <= last; number++) {
        const uint64_t first = number;
        for (; number <= last && is_idle(number); number++) {
            parts_[number].touched = 0;
        }
        if (number > first) {
            owners_.discard(first << part_bits_, (number - first) << part_bits_);
        }
    }
}

} // namespace emm::pool
