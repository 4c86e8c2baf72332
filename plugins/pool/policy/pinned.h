// The numbers that decide how much memory is pinned, and when: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace emm::pool {

// Whether to pin another block of this size: once it has cost about as much to ask the driver which
// block of the size is complete. At most 8 times for a size, because a program whose
// work never ends would pin for ever.
bool is_worth_pinning(uint64_t bytes, uint32_t questions, uint32_t growths);

// How much to pin for a block of this size: eight blocks, up to 32 MiB, because the driver can be
// asked about several at once; a larger block is pinned alone.
uint64_t pinned_bytes(uint64_t bytes);

// Blocks of up to this size wait in lists for a request of their size. Larger ones join their
// neighbours in the heap, because rounding them up to a size class would waste megabytes.
constexpr uint64_t ready_limit = 64 << 20;

// Blocks of one size that a thread keeps: up to 1 MiB and at most 32, because a batch touches their
// records. But four of any size, so that a loop over a few buffers takes no lock.
constexpr uint32_t most_blocks_in_a_pinned_bin = 32;
constexpr uint32_t blocks_in_a_pinned_bin(uint64_t block_size) {
    constexpr uint64_t bytes = 1 << 20;
    constexpr uint64_t fewest = 4;
    return uint32_t(std::clamp<uint64_t>(bytes / block_size, fewest, most_blocks_in_a_pinned_bin));
}

// Sizes of pinned blocks that a thread keeps: a program has few. A second size of the same bin
// sends the first home.
constexpr unsigned pinned_bins = 8;

} // namespace emm::pool
