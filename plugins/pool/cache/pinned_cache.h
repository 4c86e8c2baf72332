// One thread's pinned memory: in the magazine of calls without a stream, complete blocks to hand
// out; in each magazine, what its stream has freed and the driver was not asked about. Like all
// that lies in magazines the blocks count as taken, and the program has none of them.
#pragma once

#include "gauge.h"
#include "heap/block.h"
#include "heap/slab.h"
#include "policy/pinned.h"

namespace emm::pool {

struct PinnedCache {
    struct Bin {
        HostPool *pool = nullptr;
        unsigned index = 0; // class
        Gauge<uint32_t> count;
        Block *blocks[most_blocks_in_a_pinned_bin];

        bool holds(const HostPool *of, unsigned its_class) const {
            return pool == of && index == its_class;
        }
    };

    Bin &bin_for(unsigned its_class) { return ready[its_class % pinned_bins]; }

    // --- by its owner, inside the magazine's lock
    Block *take(const HostPool *pool, size_t size) {
        const unsigned index = class_of(size);
        Bin &bin = bin_for(index);
        const uint32_t n = bin.count.get();
        if (n == 0 || !bin.holds(pool, index)) {
            return nullptr;
        }
        bin.count.set(n - 1);
        bin.blocks[n - 1]->loan.begin(size);
        live.add(int64_t(size));
        return bin.blocks[n - 1];
    }
    bool give(Block &block, size_t size) {
        const uint64_t lent = block.loan.plain_size();
        const uint32_t n = freed_count.get();
        if (lent == 0 || (size != 0 && size != lent) || !kept ||
            n >= blocks_in_a_pinned_bin(block.size)) {
            return false;
        }
        block.loan.end();
        freed[n] = &block;
        freed_count.set(n + 1);
        live.add(-int64_t(lent));
        return true;
    }

    // --- with the pool's lock
    bool empty() const {
        uint32_t blocks = freed_count.get();
        for (const Bin &bin : ready) {
            blocks += bin.count.get();
        }
        return blocks == 0;
    }
    bool is_unused() const { return empty() && live.get() == 0; }

    Bin ready[pinned_bins];
    Block *freed[most_blocks_in_a_pinned_bin];
    Gauge<uint32_t> freed_count;
    Gauge<int64_t> live; // bytes allocated here less those freed here, not yet counted elsewhere
    bool kept = true;    // false: another thread has had to fetch the memory
};

} // namespace emm::pool
