#include "host_pool.h"

namespace emm::pool {

Block *HostPool::take(uint64_t size) {
    Block *block = take_ready(size);
    if (!block) {
        heap.reserve_record();
        block = heap.take(heap.anyone, host_rounding(size));
    }
    return block;
}

void HostPool::give(Block &block) {
    if (block.size <= ready_limit) {
        ready[class_of(block.size)].blocks.push_front(block);
    } else {
        block.host = nullptr;
        heap.give(block, heap.anyone);
    }
}

void HostPool::clear_ready() {
    for (ReadyList &list : ready) {
        while (Block *block = list.blocks.pop_front()) {
            block->host = nullptr;
            heap.give(*block, heap.anyone);
        }
        list.questions = list.growths = 0;
    }
}

List<Segment, &Segment::all> HostPool::forget_all() {
    for (ReadyList &list : ready) {
        list = {};
    }
    return heap.forget_all();
}

bool HostPool::outgrown(uint64_t size) const {
    if (size > ready_limit) {
        return false;
    }
    const ReadyList &list = ready[class_of(size)];
    return is_worth_pinning(host_rounding(size), list.questions, list.growths);
}

std::string HostPool::fault() const {
    for (unsigned i = 0; i < ready_classes; i++) {
        const auto &blocks = ready[i].blocks;
        for (const Block *block = blocks.first(); block; block = blocks.next(*block)) {
            if (block->host != this || block->size != class_size(i) ||
                block->state != State::waiting) {
                return "a list of ready blocks holds one that is not its own, or is in use";
            }
        }
    }
    return heap.fault();
}

} // namespace emm::pool
