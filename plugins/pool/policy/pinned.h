// The numbers that decide how much memory is pinned, and when: pure functions.
#pragma once

#include <cstdint>

namespace emm::pool {

// Whether to pin another block of so many bytes rather than ask the driver which one is complete:
// questions have cost about as much as pinning would. No more than 8 times for a size, because a
// program whose work never ends would pin for ever.
bool is_worth_pinning(uint64_t bytes, uint32_t questions, uint32_t growths);

// How much to pin for a block of so many bytes: eight of them, up to 32 MiB, because the driver can
// be asked about several at once; a larger block is pinned alone.
uint64_t pinned_bytes(uint64_t bytes);

} // namespace emm::pool
