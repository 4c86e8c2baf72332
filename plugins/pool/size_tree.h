// An index of blocks by size: best fit, and of equal sizes the one at the lowest address.
#pragma once

#include <cstdint>

namespace emm::pool {

struct Block;

// Part of a block; one block may be in several trees, or twice in one, with a node for each.
struct SizeNode {
    SizeNode *child[2] = {nullptr, nullptr};
    Block *block = nullptr;
    uint64_t size = 0;
    uint64_t address = 0;
    uint32_t priority = 0; // random: the tree is a treap, so no order of insertions makes it a list
    bool linked = false;

    bool before(const SizeNode &other) const {
        return size != other.size ? size < other.size : address < other.address;
    }
};

class SizeTree {
public:
    // No two nodes of a tree have both size and address in common.
    void insert(SizeNode &node, uint64_t size, uint64_t address);
    void remove(SizeNode &node);

    // The smallest that is not below `size`; NULL if there is none.
    SizeNode *best(uint64_t size) const;
    SizeNode *after(const SizeNode &node) const;
    SizeNode *largest() const;
    bool empty() const { return !root_; }

private:
    SizeNode *root_ = nullptr;
};

} // namespace emm::pool
