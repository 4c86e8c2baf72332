#include "size_tree.h"

namespace emm::pool {

void SizeTree::insert(SizeNode &node, uint64_t size, uint64_t address) {
    node.size = size;
    node.address = address;
    const unsigned bin = bin_of(size);
    occupied_[bin / 64] |= uint64_t(1) << bin % 64;
    in_use_ |= uint64_t(1) << bin / 64;
    SizeNode **link = &roots_[bin];
    while (*link && (*link)->priority() >= node.priority()) {
        link = &(*link)->child[(*link)->before(node)];
    }
    // The subtree found is split around the new node, which takes its place.
    SizeNode *rest = *link;
    *link = &node;
    SizeNode **low = &node.child[0];
    SizeNode **high = &node.child[1];
    while (rest) {
        const bool is_low = rest->before(node);
        SizeNode **&edge = is_low ? low : high;
        *edge = rest;
        edge = &rest->child[is_low];
        rest = *edge;
    }
    *low = *high = nullptr;
}

void SizeTree::remove(SizeNode &node) {
    const unsigned bin = bin_of(node.size);
    SizeNode **link = &roots_[bin];
    while (*link != &node) {
        link = &(*link)->child[(*link)->before(node)];
    }
    SizeNode *low = node.child[0];
    SizeNode *high = node.child[1];
    while (low && high) {
        const bool take_low = low->priority() >= high->priority();
        SizeNode *&top = take_low ? low : high;
        *link = top;
        link = &top->child[take_low];
        top = *link;
    }
    *link = low ? low : high;
    node.size = 0;
    if (!roots_[bin]) {
        occupied_[bin / 64] &= ~(uint64_t(1) << bin % 64);
        in_use_ &= ~(uint64_t(occupied_[bin / 64] == 0) << bin / 64);
    }
}

SizeNode *SizeTree::first_from(unsigned bin) const {
    if (bin >= bins) {
        return nullptr;
    }
    unsigned word = bin / 64;
    uint64_t rest = occupied_[word] >> bin % 64 << bin % 64;
    if (rest == 0) {
        const uint64_t later = in_use_ >> word >> 1 << word << 1;
        if (later == 0) {
            return nullptr;
        }
        word = unsigned(std::countr_zero(later));
        rest = occupied_[word];
    }
    SizeNode *node = roots_[word * 64 + unsigned(std::countr_zero(rest))];
    while (node->child[0]) {
        node = node->child[0];
    }
    return node;
}

SizeNode *SizeTree::best(uint64_t size) const {
    const unsigned bin = bin_of(size);
    SizeNode *found = nullptr;
    for (SizeNode *node = roots_[bin]; node;) {
        const bool fits = node->size >= size;
        found = fits ? node : found;
        node = node->child[!fits];
    }
    return found ? found : first_from(bin + 1);
}

SizeNode *SizeTree::after(const SizeNode &position) const {
    const unsigned bin = bin_of(position.size);
    SizeNode *found = nullptr;
    for (SizeNode *node = roots_[bin]; node;) {
        const bool later = position.before(*node);
        found = later ? node : found;
        node = node->child[!later];
    }
    return found ? found : first_from(bin + 1);
}

SizeNode *SizeTree::largest() const {
    for (unsigned word = words; word-- > 0;) {
        if (occupied_[word] == 0) {
            continue;
        }
        SizeNode *node = roots_[word * 64 + 63 - unsigned(std::countl_zero(occupied_[word]))];
        while (node->child[1]) {
            node = node->child[1];
        }
        return node;
    }
    return nullptr;
}

} // namespace emm::pool
