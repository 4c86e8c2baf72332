// An index of blocks by size: best fit, and among equal sizes the lowest address. Bins, sixty-four
// to each doubling, tell sizes apart roughly, and a tree in each bin exactly.
#pragma once

#include <bit>
#include <cstdint>

namespace emm::pool {

struct Block;

// A member of a block. One block may be in several trees, or twice in one, with a node for each.
struct SizeNode {
    SizeNode *child[2] = {nullptr, nullptr};
    uint64_t size = 0; // 0: in no tree
    uint64_t address = 0;

    bool linked() const { return size != 0; }
    Block *block() const; // the block whose record has this node
    bool before(const SizeNode &other) const {
        return size != other.size ? size < other.size : address < other.address;
    }
    // As good as random: the tree is a treap, so no order of insertions can make it a list.
    uint64_t priority() const {
        return reinterpret_cast<uintptr_t>(this) / sizeof(SizeNode) * 0x9e3779b97f4a7c15u;
    }
};

class SizeTree {
public:
    // No two nodes of a tree share both size and address.
    void insert(SizeNode &node, uint64_t size, uint64_t address);
    void remove(SizeNode &node);

    // The smallest that is not below `size`; NULL if there is none.
    SizeNode *best(uint64_t size) const;
    SizeNode *after(const SizeNode &node) const;
    SizeNode *largest() const;
    bool empty() const { return !largest(); }

private:
    static constexpr unsigned unit_bits = 9; // finer differences are left to the trees
    static constexpr unsigned step_bits = 6;
    static constexpr unsigned steps = 1 << step_bits;
    static constexpr unsigned bins = 23 * steps; // the last bin: 127 GiB and beyond
    static constexpr unsigned words = bins / 64;

    static unsigned bin_of(uint64_t size) {
        const uint64_t units = size >> unit_bits;
        if (units < steps) {
            return unsigned(units);
        }
        const unsigned doubling = unsigned(std::bit_width(units)) - step_bits;
        const unsigned bin = doubling * steps + unsigned(units >> (doubling - 1)) % steps;
        return bin < bins ? bin : bins - 1;
    }
    static_assert(words <= 64);

    SizeNode *first_from(unsigned bin) const; // the smallest in this bin or any later one

    SizeNode *roots_[bins] = {};
    uint64_t occupied_[words] = {}; // bins with a tree
    uint64_t in_use_ = 0;           // words of them that are not 0
};

} // namespace emm::pool
