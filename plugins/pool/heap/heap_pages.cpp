// A segment of pages is a range of addresses, parts of which have memory behind them. The rest is
// holes: blocks too, so that neighbours and addresses work as everywhere else.
#include "heap.h"

#include <algorithm>

namespace emm::pool {
namespace {

constexpr int holes_considered = 8;

uint64_t first_page(const SizeNode &part) {
    return round_up(part.address, segment_granule);
}

// What a request of `pool` could have of a free neighbour, on the side that touches a hole.
uint64_t usable(const Block *block, const FreePool &pool, bool at_its_end) {
    if (!block || block->state != State::free) {
        return 0;
    }
    const bool own = block->pool == &pool && pool.order == Order::stream;
    if (own || !block->dirty()) {
        return block->size;
    }
    return at_its_end ? block->end() - block->dirty_end : block->dirty_begin - block->begin;
}

} // namespace

void Heap::add_space(Segment &segment) {
    Block *block = segment.first;
    block->segment = &segment;
    block->zone = segment.zone;
    block->begin = segment.base;
    block->size = segment.size;
    segments_.push_back(segment);
    map_.set(segment.base, segment.size, &segment);
    make_hole(*block);
}

void Heap::make_hole(Block &block) {
    disown(block);
    block.state = State::hole;
    block.pool = &anyone;
    block.dirty_begin = block.dirty_end = block.begin;
    index(*coalesce(&block));
}

Heap::Room Heap::room_in(Block &hole, const FreePool &pool, uint64_t bytes) const {
    const uint64_t before = usable(hole.left, pool, true);
    const uint64_t after = usable(hole.right, pool, false);
    const uint64_t beside = std::max(before, after);
    const uint64_t missing = bytes > beside ? round_up(bytes - beside, segment_granule) : 0;
    if (missing <= hole.size) {
        return {&hole, missing, after > before};
    }
    const uint64_t together = before + hole.size + after;
    return together >= bytes ? Room{&hole, hole.size, false, true, together - bytes} : Room{};
}

// Where the fewest pages are missing, among a few holes that are as small as possible and the
// largest.
Heap::Room Heap::room_for(const FreePool &pool, uint64_t bytes, Zone zone) const {
    const SizeTree &holes = holes_[unsigned(zone)];
    Room best;
    const auto consider = [&](const SizeNode *hole) {
        const Room room = hole ? room_in(*hole->block(), pool, bytes) : Room{};
        if (room.hole && (!best.hole || room.missing < best.missing)) {
            best = room;
        }
    };
    const SizeNode *hole = holes.best(segment_granule);
    for (int i = 0; hole && i < holes_considered; i++, hole = holes.after(*hole)) {
        consider(hole);
    }
    consider(holes.best(round_up(bytes, segment_granule)));
    consider(holes.largest());
    return best;
}

Heap::Room Heap::room_alone(uint64_t bytes, Zone zone) const {
    const uint64_t missing = round_up(bytes, segment_granule);
    const SizeNode *hole = holes_[unsigned(zone)].best(missing);
    return hole ? Room{hole->block(), missing} : Room{};
}

Block *Heap::take_hole(Room room) {
    Block *taken = cut(*room.hole, room.missing, room.at_its_end);
    taken->state = State::waiting;
    return taken;
}

uint64_t Heap::whole_pages(const SizeNode &part) {
    const uint64_t last = (part.address + part.size) / segment_granule * segment_granule;
    return last > first_page(part) ? (last - first_page(part)) / segment_granule : 0;
}

const SizeNode *Heap::part_with_pages(const SizeNode &position) const {
    const SizeNode *found = nullptr;
    for (const SizeTree &complete : complete_) {
        const SizeNode *part = complete.after(position);
        while (part && !(part->block()->segment->paged() && whole_pages(*part) > 0)) {
            part = complete.after(*part);
        }
        found = part && (!found || part->before(*found)) ? part : found;
    }
    return found;
}

// `last`: those at its end.
Block *Heap::take_pages(const SizeNode &part, uint64_t pages, bool last) {
    Block &block = *part.block();
    const uint64_t bytes = pages * segment_granule;
    const uint64_t begin =
        first_page(part) + (last ? whole_pages(part) * segment_granule - bytes : 0);
    const bool from_the_end = &part == &block.high || (last && !block.dirty());
    Block *taken =
        cut(block, from_the_end ? block.end() - begin : begin + bytes - block.begin, from_the_end);
    if (taken->begin != begin) {
        Block *front = taken;
        taken = split(*front, begin - front->begin);
        give(*front, anyone);
    }
    if (taken->size != bytes) {
        give(*split(*taken, bytes), anyone);
    }
    taken->state = State::waiting;
    return taken;
}

// A taken block keeps its front; the rest is returned, taken as well.
Block *Heap::split(Block &block, uint64_t front, Block &record) {
    Block *rest = &record;
    rest->segment = block.segment;
    rest->zone = block.zone;
    rest->begin = block.begin + front;
    rest->size = block.size - front;
    rest->left = &block;
    rest->right = block.right;
    rest->state = State::waiting;
    if (rest->right) {
        rest->right->left = rest;
    }
    block.right = rest;
    block.size = front;
    own(*rest);
    return rest;
}

} // namespace emm::pool
