// Segments in and out of the heap.
#include "heap.h"

namespace emm::pool {

void Heap::prepare(Segment &segment) {
    map_.reserve(segment.base, segment.size);
    reserve_record();
    segment.first = records_.take();
}

void Heap::add(Segment &segment) {
    Block *block = segment.first;
    block->segment = &segment;
    block->zone = segment.zone;
    block->begin = segment.base;
    block->size = segment.size;
    segments_.push_back(segment);
    zone_bytes_[unsigned(segment.zone)] += segment.size;
    map_.set(segment.base, segment.size, &segment);
    give(*block, anyone);
}

void Heap::remove(Segment &segment) {
    Block &block = *segment.first;
    unindex(block);
    if (block.pending.linked) {
        block.pool->pending.remove(block);
    }
    map_.set(segment.base, segment.size, nullptr);
    segments_.remove(segment);
    zone_bytes_[unsigned(segment.zone)] -= segment.size;
    segment.first = nullptr;
    records_.give(&block);
}

List<Segment, &Segment::all> Heap::forget_all() {
    List<Segment, &Segment::all> segments;
    while (Segment *segment = segments_.pop_front()) {
        map_.set(segment->base, segment->size, nullptr);
        for (Block *block = segment->first; block;) {
            Block *next = block->right;
            *block = Block();
            records_.give(block);
            block = next;
        }
        segments.push_back(*segment);
    }
    whole_ = {};
    for (unsigned zone = 0; zone < zones; zone++) {
        complete_[zone] = unmapped_[zone] = {};
        zone_bytes_[zone] = idle_bytes_[zone] = 0;
    }
    ranges_ = {};
    former_places_ = 0;
    idle_places_.clear();
    whole_bytes_ = quarantined_ = 0;
    return segments;
}

} // namespace emm::pool
