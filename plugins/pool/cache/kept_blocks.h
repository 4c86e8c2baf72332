// Blocks that a magazine keeps of what was freed on its stream, for requests of just their size.
// There are three stores with one interface: those of this file, and UnorderedBlocks.
//
//   accepts()      whether a freed block of that size may be kept, if there is room
//   take(), give() by the owner of the magazine, inside its lock; NULL, and false: nothing happens
//   note_miss()    a request of that size has found nothing, and no block is in any store now
//   drain()        hands each block over, and keeps none; with the pool's lock, as are the rest
#pragma once

#include "gauge.h"
#include "heap/block.h"
#include "policy/caches.h"

#include <utility>

namespace emm::pool {

// The last few freed blocks of any size up to a limit.
class RecentBlocks {
public:
    struct Entry { // has the fields that a take reads, so the block's record is read later
        uint64_t address;
        uint64_t size;
        Block *block;
    };

    explicit RecentBlocks(uint64_t largest) : largest_(largest) {}

    bool accepts(uint64_t bytes) const { return bytes <= largest_; }
    const Entry *take_newest(uint64_t bytes) {
        const uint32_t n = count_.get();
        if (n == 0 || entries_[n - 1].size != bytes) {
            return nullptr;
        }
        count_.set(n - 1);
        bytes_.add(-bytes);
        return &entries_[n - 1];
    }
    const Entry *take(uint64_t bytes) {
        for (uint32_t n = count_.get(); n-- > 0;) {
            if (entries_[n].size == bytes) {
                std::swap(entries_[n], entries_[count_.get() - 1]);
                return take_newest(bytes);
            }
        }
        return nullptr;
    }
    bool give(Block &block) {
        const uint32_t n = count_.get();
        if (!accepts(block.size) || n == most_blocks_a_magazine) {
            return false;
        }
        entries_[n] = {block.begin, block.size, &block};
        count_.set(n + 1);
        bytes_.add(block.size);
        return true;
    }

    template <class Function> void each(Function function) const {
        for (uint32_t i = 0; i < count_.get(); i++) {
            function(*entries_[i].block, entries_[i].size);
        }
    }
    template <class Function> void drain(Function function) {
        each(function);
        count_.set(0);
        bytes_.set(0);
    }
    uint64_t idle_bytes() const { return bytes_.get(); }

private:
    const uint64_t largest_;
    Entry entries_[most_blocks_a_magazine];
    Gauge<uint32_t> count_;
    Gauge<uint64_t> bytes_;
};

// A few larger blocks of one size. A size is kept if two requests in a row asked for it and found
// nothing. Sizes that alternate stay in the heap, for a best fit.
class RepeatedBlocks {
public:
    explicit RepeatedBlocks(uint64_t largest) : largest_(largest) {}

    bool accepts(uint64_t bytes) const { return bytes == size_.get(); }
    Block *take(uint64_t bytes) {
        const uint32_t n = count_.get();
        if (n == 0 || !accepts(bytes)) {
            return nullptr;
        }
        count_.set(n - 1);
        return blocks_[n - 1];
    }
    bool give(Block &block) {
        const uint32_t n = count_.get();
        if (!accepts(block.size) || n == most_blocks_a_magazine) {
            return false;
        }
        blocks_[n] = &block;
        count_.set(n + 1);
        return true;
    }

    void note_miss(uint64_t bytes) {
        if (bytes <= largest_) {
            size_.set(bytes == missed_ ? bytes : 0);
            missed_ = bytes;
        }
    }
    template <class Function> void each(Function function) const {
        for (uint32_t i = 0; i < count_.get(); i++) {
            function(*blocks_[i], size_.get());
        }
    }
    template <class Function> void drain(Function function) {
        each(function);
        count_.set(0);
    }
    uint64_t idle_bytes() const { return count_.get() * size_.get(); }
    uint64_t largest() const { return count_.get() > 0 ? size_.get() : 0; } // of the blocks here

private:
    const uint64_t largest_;
    uint64_t missed_ = 0;  // the size of the last miss
    Gauge<uint64_t> size_; // 0: none
    Gauge<uint32_t> count_;
    Block *blocks_[most_blocks_a_magazine];
};

} // namespace emm::pool
