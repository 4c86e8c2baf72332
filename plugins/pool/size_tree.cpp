#include "size_tree.h"

namespace emm::pool {

void SizeTree::insert(SizeNode &node, uint64_t size, uint64_t address) {
    node.size = size;
    node.address = address;
    node.linked = true;
    SizeNode **link = &root_;
    while (*link && (*link)->priority >= node.priority) {
        link = &(*link)->child[(*link)->before(node)];
    }
    // The subtree found is split in two around the new node, which takes its place.
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
    SizeNode **link = &root_;
    while (*link != &node) {
        link = &(*link)->child[(*link)->before(node)];
    }
    SizeNode *low = node.child[0];
    SizeNode *high = node.child[1];
    while (low && high) {
        const bool take_low = low->priority >= high->priority;
        SizeNode *&top = take_low ? low : high;
        *link = top;
        link = &top->child[take_low];
        top = *link;
    }
    *link = low ? low : high;
    node.linked = false;
}

SizeNode *SizeTree::best(uint64_t size) const {
    SizeNode *found = nullptr;
    for (SizeNode *node = root_; node;) {
        const bool fits = node->size >= size;
        found = fits ? node : found;
        node = node->child[!fits];
    }
    return found;
}

SizeNode *SizeTree::after(const SizeNode &position) const {
    SizeNode *found = nullptr;
    for (SizeNode *node = root_; node;) {
        const bool later = position.before(*node);
        found = later ? node : found;
        node = node->child[!later];
    }
    return found;
}

SizeNode *SizeTree::largest() const {
    SizeNode *node = root_;
    while (node && node->child[1]) {
        node = node->child[1];
    }
    return node;
}

} // namespace emm::pool
