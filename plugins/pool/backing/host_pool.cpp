#include "host_pool.h"

namespace emm::pool {
namespace {

// Measured on an H200: a question about a stream, and pinning memory.
constexpr uint64_t question_ns = 150;
constexpr uint64_t growth_ns = 700'000;
constexpr uint64_t growth_ns_per_mib = 400'000;

constexpr uint32_t most_growths = 8;

} // namespace

Block *HostPool::take(uint64_t size) {
    Block *block = take_shelved(size);
    if (!block) {
        heap.reserve_record();
        block = heap.take(heap.anyone, host_rounding(size));
    }
    return block;
}

void HostPool::give(Block &block) {
    if (block.size <= shelf_limit) {
        shelves[class_of(block.size)].blocks.push_front(block);
    } else {
        block.host = nullptr;
        heap.give(block, heap.anyone);
    }
}

void HostPool::clear_shelves() {
    for (Shelf &shelf : shelves) {
        while (Block *block = shelf.blocks.pop_front()) {
            block->host = nullptr;
            heap.give(*block, heap.anyone);
        }
        shelf.questions = shelf.growths = 0;
    }
}

List<Segment, &Segment::all> HostPool::forget_all() {
    for (Shelf &shelf : shelves) {
        shelf = {};
    }
    return heap.forget_all();
}

bool HostPool::outgrown(uint64_t size) const {
    if (size > shelf_limit) {
        return false;
    }
    const Shelf &shelf = shelves[class_of(size)];
    const uint64_t growth = growth_ns + (host_rounding(size) >> 20) * growth_ns_per_mib;
    return shelf.growths < most_growths && shelf.questions * question_ns > growth;
}

std::string HostPool::fault() const {
    for (unsigned i = 0; i < shelf_classes; i++) {
        const auto &blocks = shelves[i].blocks;
        for (const Block *block = blocks.first(); block; block = blocks.next(*block)) {
            if (block->host != this || block->size != class_size(i) ||
                block->state != State::waiting) {
                return "a shelf holds a block that is not its own, or is in use";
            }
        }
    }
    return heap.fault();
}

} // namespace emm::pool
