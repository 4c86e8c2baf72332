#include "block_depot.h"

#include <algorithm>

namespace emm::pool {

bool BlockDepot::put(Block &block) {
    if (waiting_count_ + complete_count_ == most_blocks_in_depot ||
        waiting_bytes_ + complete_bytes_ + block.size > most_) {
        return false;
    }
    block.state = State::waiting;
    block.tag = heap_.now();
    waiting_.push_back(block);
    waiting_bytes_ += block.size;
    waiting_count_++;
    return true;
}

void BlockDepot::complete(uint64_t tag, bool keep) {
    while (waiting_.first() && waiting_.first()->tag <= tag) {
        Block &block = *next_waiting();
        if (Bin *bin = keep ? bin_for(block.size) : nullptr) {
            bin->blocks.push_back(block);
            complete_bytes_ += block.size;
            complete_count_++;
        } else {
            heap_.give(block, heap_.anyone);
        }
    }
}

Block *BlockDepot::next_waiting() {
    Block *block = waiting_.pop_front();
    if (block) {
        waiting_bytes_ -= block->size;
        waiting_count_--;
    }
    return block;
}

// The bin for that size, or an empty bin; NULL: all bins have other sizes.
BlockDepot::Bin *BlockDepot::bin_for(uint64_t size) {
    Bin *empty = nullptr;
    for (Bin &bin : bins_) {
        if (bin.size == size) {
            return &bin;
        }
        empty = !empty && bin.blocks.empty() ? &bin : empty;
    }
    if (empty) {
        empty->size = size;
    }
    return empty;
}

Block *BlockDepot::take(uint64_t size) {
    for (Bin &bin : bins_) {
        Block *block = bin.size == size ? bin.blocks.pop_front() : nullptr;
        if (block) {
            block->state = State::live;
            complete_bytes_ -= size;
            complete_count_--;
            return block;
        }
    }
    return nullptr;
}

bool BlockDepot::give_complete() {
    const bool any = complete_count_ > 0;
    for (unsigned i = 0; any && i < depot_sizes; i++) {
        while (Block *block = bins_[i].blocks.pop_front()) {
            heap_.give(*block, heap_.anyone);
        }
    }
    complete_bytes_ = complete_count_ = 0;
    return any;
}

uint64_t BlockDepot::give_waiting(FreePool &unordered) {
    const uint64_t bytes = waiting_bytes_;
    while (Block *block = next_waiting()) {
        heap_.give(*block, unordered);
    }
    return bytes;
}

void BlockDepot::forget_memory() {
    waiting_ = {};
    for (Bin &bin : bins_) {
        bin = {};
    }
    waiting_bytes_ = complete_bytes_ = waiting_count_ = complete_count_ = 0;
}

uint64_t BlockDepot::largest_complete() const {
    uint64_t size = 0;
    for (const Bin &bin : bins_) {
        size = bin.blocks.empty() ? size : std::max(size, bin.size);
    }
    return size;
}

bool BlockDepot::all_idle() const {
    uint64_t waiting = 0, complete = 0;
    uint32_t count = 0; // of both
    bool idle = true;
    const auto look = [&](const Blocks &blocks, uint64_t &bytes) {
        for (const Block *block = blocks.first(); block; block = Blocks::next(*block)) {
            idle = idle && block->state == State::waiting && block->loan.size() == 0 &&
                   !block->uses && !block->capture;
            bytes += block->size;
            count++;
        }
    };
    look(waiting_, waiting);
    for (const Bin &bin : bins_) {
        look(bin.blocks, complete);
    }
    return idle && waiting == waiting_bytes_ && complete == complete_bytes_ &&
           count == waiting_count_ + complete_count_;
}

} // namespace emm::pool
