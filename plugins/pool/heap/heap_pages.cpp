// A segment of pages is a range of addresses, and parts of it have memory behind them. The other
// parts are unmapped ranges. They are blocks too, so that neighbours and addresses work as
// everywhere else.
#include "heap.h"

#include <algorithm>

namespace emm::pool {
namespace {

constexpr int ranges_considered = 8; // of the smallest; each growth tries all

// Bytes of a free neighbour that a request of `pool` could have, on the side that touches an
// unmapped range.
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

void Heap::add_addresses(Segment &segment) {
    Block *block = segment.first;
    block->segment = &segment;
    block->zone = segment.zone;
    block->begin = segment.base;
    block->size = segment.size;
    segments_.push_back(segment);
    map_.set(segment.base, segment.size, &segment);
    add_range(*block);
}

void Heap::add_range(Block &block) {
    forget_start(block);
    block.state = State::unmapped;
    block.pool = &anyone;
    block.dirty_begin = block.dirty_end = block.begin;
    index(*coalesce(&block));
}

void Heap::make_unmapped(Block &block) {
    Segment &segment = *block.segment;
    const uint64_t begin = segment.index(block.begin), end = segment.index(block.end());
    add_range(block);
    segment.owners.discard(begin, end);
}

uint64_t Heap::Room::begin(uint64_t bytes) const {
    return at_its_end ? range->end() - bytes : range->begin;
}

Heap::Room Heap::room_in(Block &range, const FreePool &pool, uint64_t bytes) const {
    const uint64_t before = usable(range.left, pool, true);
    const uint64_t after = usable(range.right, pool, false);
    const uint64_t beside = std::max(before, after);
    const uint64_t missing = bytes > beside ? round_up(bytes - beside, page_bytes) : 0;
    if (missing > range.size) {
        return {};
    }
    const Block *joined = after > before ? range.right : range.left;
    return {&range, missing, after > before, beside > 0 ? joined : nullptr};
}

// The range with the fewest missing pages, among a few of the smallest that suffice and the
// largest.
Heap::Room Heap::room_for(const FreePool &pool, uint64_t bytes, Zone zone) const {
    const SizeTree &ranges = unmapped_[unsigned(zone)];
    Room best;
    const auto consider = [&](const SizeNode *range) {
        const Room room = range ? room_in(*range->block(), pool, bytes) : Room{};
        if (room.range && (!best.range || room.missing < best.missing)) {
            best = room;
        }
    };
    const SizeNode *range = ranges.best(segment_granule);
    for (int i = 0; range && i < ranges_considered; i++, range = ranges.after(*range)) {
        consider(range);
    }
    consider(ranges.best(round_up(bytes, segment_granule)));
    consider(ranges.largest());
    return best;
}

Heap::Room Heap::room_alone(uint64_t bytes, Zone zone) const {
    const uint64_t missing = round_up(bytes, segment_granule);
    const SizeNode *range = unmapped_[unsigned(zone)].best(missing);
    return range ? Room{range->block(), missing} : Room{};
}

// The first range that ends behind the address.
Block *Heap::range_at(uint64_t address) const {
    SizeNode position;
    position.size = granule;
    position.address = address;
    return ranges_.after(position)->block();
}

Block *Heap::take_unmapped(uint64_t begin, uint64_t end) {
    Block &range = *range_at(begin);
    const Piece first = range.segment->pieces.at(begin), last = range.segment->pieces.at(end - 1);
    begin = first ? first.address : begin;
    end = last ? last.end() : end;
    Block *taken = cut(range, range.end() - begin, true);
    taken->state = State::waiting;
    if (taken->end() != end) {
        add_range(*split(*taken, end - begin));
    }
    return taken;
}

// The next larger complete part that may have whole pieces. If segments have pages, all parts do.
const SizeNode *Heap::next_paged_part(const SizeNode &position, bool spilled) const {
    if (spilled) {
        return complete_[unsigned(Zone::spilled)].after(position);
    }
    const SizeNode *const large = complete_[unsigned(Zone::large)].after(position);
    const SizeNode *const small = complete_[unsigned(Zone::small)].after(position);
    return small && (!large || small->before(*large)) ? small : large;
}

std::vector<IdlePiece> Heap::idle_pieces(const Block *spared, size_t parts,
                                         const std::vector<Ordered> &ordered, bool spilled) const {
    std::vector<IdlePiece> found;
    SizeNode position;
    position.size = page_bytes - 1;
    while (const SizeNode *part = parts > 0 ? next_paged_part(position, spilled) : nullptr) {
        position.size = part->size;
        position.address = part->address;
        const uint64_t end = part->address + part->size;
        Block *block = part->block();
        const Pieces &pieces = block->segment->pieces;
        Piece piece = pieces.first_within(round_up(part->address, page_bytes), end);
        parts -= piece ? 1 : 0;
        while (piece && block != spared) {
            if (may_leave(piece, false)) {
                found.push_back({piece, part->size, block, false});
            }
            piece = piece.end() < end ? pieces.first_within(piece.end(), end) : Piece{};
        }
    }
    add_pending_pieces(spared, parts, ordered, found);
    return found;
}

// Cuts the front off a free block that is in no index. The front stays free, and as dirty as it
// was.
Block *Heap::split_free(Block &block, uint64_t bytes) {
    Block *front = records_.take();
    front->segment = block.segment;
    front->zone = block.zone;
    front->begin = block.begin;
    front->size = bytes;
    front->left = block.left;
    front->right = &block;
    (front->left ? front->left->right : front->segment->first) = front;
    block.left = front;
    block.begin += bytes;
    block.size -= bytes;
    front->pool = block.pool;
    front->tag = block.tag;
    front->dirty_begin = std::min(block.dirty_begin, front->end());
    front->dirty_end = std::min(block.dirty_end, front->end());
    if (front->dirty()) {
        block.pool->pending.insert_before(block, *front);
    }
    block.dirty_begin = std::max(block.dirty_begin, block.begin);
    block.dirty_end = std::max(block.dirty_end, block.begin);
    if (!block.dirty() && block.pending.linked) {
        block.pool->pending.remove(block);
    }
    return front;
}

// A piece may lie in several free blocks, side by side: together they become one taken block.
std::vector<Block *> Heap::take_pieces(const std::vector<IdlePiece> &chosen, FreePool &pool) {
    std::vector<Block *> taken, rests;
    taken.reserve(chosen.size());
    rests.reserve(3 * chosen.size());
    Block *rest = nullptr; // the remainder of the latest block, to the right, with its record
    const auto put_aside = [&](Block *block) {
        if (block) {
            block->state = State::waiting; // so that no neighbour joins the block yet
            rests.push_back(block);
        }
    };
    for (const IdlePiece &each : chosen) {
        Block *whole = nullptr;
        Block *next = each.block;
        for (uint64_t at = each.piece.address; at < each.piece.end(); at = whole->end()) {
            Block *block = next;
            next = block->right;
            if (block != rest) {
                put_aside(rest);
                rest = block;
                unindex(*block);
            }
            if (block->begin < at) {
                put_aside(split_free(*block, at - block->begin));
            }
            const bool ends = block->end() <= each.piece.end();
            Block *part = ends ? block : split_free(*block, each.piece.end() - at);
            rest = ends ? nullptr : block;
            whole = whole ? merge(*whole, *part) : part;
        }
        if (whole->dirty()) {
            vacate(*whole, pool);
        } else {
            whole->state = State::waiting;
        }
        own(*whole);
        taken.push_back(whole);
    }
    put_aside(rest);
    for (Block *block : rests) {
        block->state = State::free;
        block->pool = block->dirty() ? block->pool : &anyone;
        index(*coalesce(block));
    }
    return taken;
}

// A taken block keeps its front; the remainder is returned, taken as well.
Block *Heap::split(Block &block, uint64_t front, Block &record) {
    Block *rest = &record;
    forget_start(block); // small blocks and large ones are found differently
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
    own(block);
    own(*rest);
    return rest;
}

} // namespace emm::pool
