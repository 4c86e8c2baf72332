// Blocks that one thread keeps for calls without a stream: complete blocks of a few sizes, to hand
// out, and freed blocks, which wait until the thread hands them over. A size becomes one of the few
// when it is missed for the second time. So if a program's sizes hardly repeat, all its blocks stay
// in the heap.
#pragma once

#include "gauge.h"
#include "heap/block.h"
#include "policy/caches.h"
#include "policy/growth.h"

#include <algorithm>
#include <utility>

namespace emm::pool {

struct UnorderedBlocks {
    struct Bin {
        uint64_t size = 0;  // of each block; 0: the bin is unused
        uint32_t batch = 0; // number of blocks in a batch
        Gauge<uint32_t> count;
        Block *blocks[most_frees_a_batch];
    };

    // Takes blocks of up to `largest` bytes each, and freed blocks of `most_bytes` in all.
    UnorderedBlocks(uint64_t largest, uint64_t most_bytes)
        : block_limit(largest), most_freed_bytes(most_bytes) {}

    bool accepts(uint64_t bytes) const { return bytes <= block_limit; }

    // --- by its owner, inside the magazine's lock
    Block *take(uint64_t bytes) {
        Bin *bin = find(bytes);
        const uint32_t n = bin ? bin->count.get() : 0;
        if (n == 0) {
            return nullptr;
        }
        bin->count.set(n - 1);
        return bin->blocks[n - 1];
    }
    // Whether a freed block of that size may be kept: a bin has the size, and there is room.
    bool has_room_for(uint64_t bytes) {
        const Bin *bin = find(bytes);
        return bin && freed_count.get() < bin->batch &&
               freed_bytes.get() + bytes <= most_freed_bytes;
    }
    bool give(Block &block) {
        if (!has_room_for(block.size)) {
            return false;
        }
        const uint32_t n = freed_count.get();
        freed[n] = &block;
        freed_count.set(n + 1);
        freed_bytes.add(block.size);
        return true;
    }

    // --- with the pool's lock
    Bin *find(uint64_t bytes) {
        for (Bin &bin : bins) {
            if (bin.size == bytes) {
                return &bin;
            }
        }
        return nullptr;
    }
    // Notes that a request of that size has found nothing while all bins were empty.
    void note_miss(uint64_t bytes) {
        if (!accepts(bytes)) {
            return;
        }
        for (const uint64_t missed : missed_lately) {
            if (missed == bytes && !find(bytes)) {
                Bin &bin = bins[next_bin++ % unordered_sizes];
                bin.size = bytes;
                bin.batch = frees_a_batch(bytes);
            }
        }
        missed_lately[next_missed++ % unordered_sizes] = bytes;
    }
    bool misses_again(uint64_t bytes) { return std::exchange(last_missed, bytes) == bytes; }
    template <class Function> void drain(Function function) { // complete blocks
        for (Bin &bin : bins) {
            for (uint32_t i = 0; i < bin.count.get(); i++) {
                function(*bin.blocks[i], bin.size);
            }
            bin.count.set(0);
        }
    }
    template <class Function> void drain_freed(Function function) {
        for (uint32_t i = 0; i < freed_count.get(); i++) {
            function(*freed[i]);
        }
        freed_count.set(0);
        freed_bytes.set(0);
    }
    // The number of complete blocks that are fetched at a time.
    uint32_t most_of(uint64_t bytes) const {
        return uint32_t(std::min<uint64_t>(frees_a_batch(bytes), most_freed_bytes / bytes));
    }
    uint64_t largest() const {
        uint64_t size = 0;
        for (const Bin &bin : bins) {
            size = bin.count.get() > 0 ? std::max(size, bin.size) : size;
        }
        return size;
    }
    uint64_t idle_bytes() const {
        uint64_t bytes = 0;
        for (const Bin &bin : bins) {
            bytes += bin.count.get() * bin.size;
        }
        return bytes;
    }

    Bin bins[unordered_sizes];
    Block *freed[most_frees_a_batch];
    Gauge<uint32_t> freed_count;
    Gauge<uint64_t> freed_bytes;
    const uint64_t block_limit;
    const uint64_t most_freed_bytes;

private:
    uint64_t missed_lately[unordered_sizes] = {};
    uint64_t last_missed = 0;
    uint32_t next_bin = 0;
    uint32_t next_missed = 0;
};

} // namespace emm::pool
