// The numbers that decide how much free memory threads keep for themselves. There it costs no lock,
// but no other stream or size can have it.
#pragma once

#include "heap/slab.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace emm::pool {

// Slots in a batch: one lock of the depot moves this many, and the copy is 1 KiB.
constexpr uint32_t most_slots_a_batch = 64;

// Slots in a new bin. The limit doubles each time it is too low, so a size that is asked for once
// leaves three slots behind.
constexpr uint32_t first_bin_limit = 4;

// Slots in a bin at most: 128 KiB, so a thread keeps no more than 4 MiB of all classes together.
constexpr uint32_t most_slots_a_bin(unsigned index) {
    constexpr uint64_t bin_bytes = 128 << 10;
    return std::clamp(uint32_t(bin_bytes / class_size(index)), first_bin_limit, most_slots_a_batch);
}

// Bytes in the depot of a stream: eight full bins. Beyond that, an excess from its threads goes
// home for other streams and sizes.
constexpr uint64_t most_in_depot = 1 << 20;

// Bytes that a thread keeps of its frees with no stream before it hands them over. No event can
// complete them earlier.
constexpr uint64_t most_quarantined = 1 << 20;

// Blocks of a stream in a magazine, of any size and of one larger size. Few, because blocks join no
// neighbours there, and a scan of four is faster than the heap.
constexpr uint32_t most_blocks_a_magazine = 4;

// The largest block kept of any size. So a magazine keeps at most 8 MiB of them, and four that lie
// between others keep at most eight pages from being moved.
constexpr uint64_t largest_block_of_any_size = segment_granule;

// Calls of an unregistered stream before it gets a magazine. The stream may end soon, and memory in
// its magazine would then wait for the next event on the context.
constexpr uint32_t calls_before_a_magazine = 64;

// Magazines of a thread for such streams. The program does not announce their end, so a new
// magazine takes the place of the oldest.
constexpr size_t most_unregistered_magazines = 16;

// Sizes of blocks that a thread, and the depot of all threads, keeps for calls without a stream:
// each call scans them.
constexpr unsigned unordered_sizes = 4;
constexpr unsigned depot_sizes = 8;

// Blocks in that depot: four full batches. Further blocks go to the heap, and are joined there.
constexpr uint32_t most_blocks_in_depot = 512;

} // namespace emm::pool
