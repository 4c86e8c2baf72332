#include "block.h"

namespace emm::pool {
namespace {

constexpr size_t batch = 128; // 32 KiB of records, so that a program makes few

} // namespace

BlockStore::~BlockStore() {
    for (Block *blocks : batches_) {
        delete[] blocks;
    }
}

void BlockStore::refill() {
    batches_.reserve(batches_.size() + 1);
    Block *blocks = new Block[batch];
    batches_.push_back(blocks);
    for (size_t i = 0; i < batch; i++) {
        give(&blocks[i]);
    }
}

Block *BlockStore::take() {
    Block *block = free_;
    free_ = block->right;
    spare_--;
    block->state = State::free;
    block->pool = nullptr;
    block->left = block->right = nullptr;
    return block;
}

void BlockStore::give(Block *block) {
    block->right = free_;
    free_ = block;
    spare_++;
}

} // namespace emm::pool
