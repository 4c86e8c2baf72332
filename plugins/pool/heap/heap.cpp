#include "heap.h"

#include <algorithm>

namespace emm::pool {
namespace {

// An ordinary request cannot use the dirty part.
bool is_quarantine(const FreePool &pool) {
    return pool.order == Order::unordered || pool.order == Order::capture;
}

uint64_t quarantine_of(const Block &block) {
    return is_quarantine(*block.pool) ? block.dirty_end - block.dirty_begin : 0;
}

// Whether the block could serve something larger: as a segment, or by its pages.
bool is_idle(const Block &block) {
    return block.segment->whole.linked || block.segment->paged();
}

// Computed from the record, because reading the segment's own would be one more cache miss.
bool spans_segment(const Block &block) {
    return !block.left && !block.right;
}

bool serves_itself(const FreePool &pool) {
    return pool.order == Order::stream || pool.order == Order::capture;
}

SizeTree &own_like(const Block &block) {
    return block.pool->own[unsigned(block.zone)];
}

} // namespace

// Two free neighbours become one block, with three exceptions: two free pools' waits would mix; a
// graph would get memory that every stream may use; or unordered frees would wait for a later event
// than their own.
bool can_merge(const Block &left, const Block &right) {
    if (left.state != State::free || right.state != State::free) {
        return left.state == State::unmapped && right.state == State::unmapped;
    }
    if (left.pool == right.pool) {
        const bool waits_alike = left.tag == right.tag && left.dirty_end == right.dirty_begin;
        return left.pool->order != Order::unordered || waits_alike;
    }
    return (!left.dirty() && right.pool->order != Order::capture) ||
           (!right.dirty() && left.pool->order != Order::capture);
}

// --- the indexes ---------------------------------------------------------------------------------

void Heap::index(Block &block) {
    if (block.state == State::unmapped) {
        unmapped_[unsigned(block.zone)].insert(block.low, block.size, block.begin);
        ranges_.insert(block.own, granule, block.end());
        return;
    }
    SizeTree &complete = complete_like(block);
    if (!block.dirty()) {
        block.pool = &anyone;
        insert(complete, block.low, block.size, block.begin);
    } else {
        FreePool &pool = *block.pool;
        if (block.dirty_begin != block.begin) {
            insert(complete, block.low, block.dirty_begin - block.begin, block.begin);
        }
        if (block.dirty_end != block.end()) {
            insert(complete, block.high, block.end() - block.dirty_end, block.dirty_end);
        }
        if (serves_itself(pool)) {
            insert(own_like(block), block.own, block.size, block.begin);
        }
        quarantined_ += quarantine_of(block);
    }
    idle_bytes_[unsigned(block.zone)] += block.size - quarantine_of(block);
    if (spans_segment(block) && block.pool->order != Order::capture && !block.segment->paged()) {
        whole_.push_back(*block.segment);
        whole_bytes_ += block.size;
    }
}

// Whether a part of this size of the block is in its index.
bool Heap::counts(const Block &block, uint64_t size) const {
    return size > small_limit || !remnants_apart_ || block.zone != Zone::large;
}

void Heap::insert(SizeTree &tree, SizeNode &node, uint64_t size, uint64_t address) const {
    if (counts(*node.block(), size)) {
        tree.insert(node, size, address);
    }
}

void Heap::remove(SizeTree &tree, SizeNode &node, uint64_t size) const {
    if (counts(*node.block(), size)) {
        tree.remove(node);
    }
}

template <class Function> void Heap::each_free(Function function) {
    for (Segment *segment = segments_.first(); segment; segment = segments_.next(*segment)) {
        for (Block *block = segment->first; block; block = block->right) {
            if (block->state == State::free) {
                function(*block);
            }
        }
    }
}

void Heap::sort_remnants_in() {
    if (remnants_apart_) {
        each_free([this](Block &block) { unindex(block); });
        remnants_apart_ = false;
        each_free([this](Block &block) { index(block); });
    }
}

void Heap::unindex(Block &block) {
    if (block.state == State::unmapped) {
        unmapped_[unsigned(block.zone)].remove(block.low);
        ranges_.remove(block.own);
        return;
    }
    const FreePool &pool = *block.pool;
    if (!block.dirty()) {
        remove(complete_like(block), block.low, block.size);
    } else {
        if (block.dirty_begin != block.begin) {
            remove(complete_like(block), block.low, block.dirty_begin - block.begin);
        }
        if (block.dirty_end != block.end()) {
            remove(complete_like(block), block.high, block.end() - block.dirty_end);
        }
        if (serves_itself(pool)) {
            remove(own_like(block), block.own, block.size);
        }
        quarantined_ -= quarantine_of(block);
    }
    idle_bytes_[unsigned(block.zone)] -= block.size - quarantine_of(block);
    if (spans_segment(block) && block.segment->whole.linked) {
        whole_.remove(*block.segment);
        whole_bytes_ -= block.segment->size;
    }
}

// Puts the rest of a cut block in its index. If all the dirt was cut off, the rest is complete, and
// may now join its neighbour.
void Heap::index_remainder(Block &block) {
    if (block.dirty() || !block.pending.linked) {
        index(block);
        return;
    }
    block.pool->pending.remove(block);
    block.pool = &anyone;
    index(*coalesce(&block));
}

// From now on the block is found by its address.
void Heap::own(Block &block) {
    Segment &segment = *block.segment;
    const bool large = 2 * block.size > segment_granule;
    if (!large || !map_.page(block.begin)->add_start(block.begin, block)) {
        segment.own(block.begin, reinterpret_cast<uintptr_t>(&block));
    }
    for (uint64_t mark = round_up(block.begin, cover_granule); mark < block.end();
         mark += cover_granule) {
        segment.cover(mark) = &block;
    }
}

void Heap::forget_start(Block &block) {
    const bool owns = block.state != State::free; // a new segment's map is still empty
    if (owns && !map_.page(block.begin)->remove_start(block.begin)) {
        block.segment->own(block.begin, 0);
    }
}

// --- taking --------------------------------------------------------------------------------------

Block *Heap::take(FreePool &pool, uint64_t size, Zone zone, uint64_t most) {
    SizeNode *own = serves_itself(pool) ? pool.own[unsigned(zone)].best(size) : nullptr;
    SizeNode *complete =
        pool.order == Order::capture && own ? nullptr : complete_[unsigned(zone)].best(size);
    const bool prefer_own =
        own && (!complete || own->size <= complete->size || complete->block()->pool == &pool);
    const SizeNode *chosen = prefer_own ? own : complete;
    if (chosen) {
        chosen->block()->expect_neighbours();
        __builtin_prefetch(map_.page(chosen->address));
    }
    if (chosen && chosen->size > most && is_idle(*chosen->block())) {
        return nullptr;
    }
    if (prefer_own) {
        return cut(*own->block(), size, false);
    }
    return complete ? cut_complete(*complete, size) : nullptr;
}

// Cuts next to the dirty part, if there is one. A cut at the far end would, when freed, make
// everything between dirty too.
Block *Heap::cut_complete(const SizeNode &part, uint64_t size) {
    Block &block = *part.block();
    const bool behind = &part == &block.high;
    if (!block.dirty() || !is_quarantine(*block.pool) || part.size == size) {
        return cut(block, size, behind);
    }
    const uint64_t rest = part.size - size;
    Block *front = cut(block, part.size, behind);
    Block *back = split(*front, behind ? size : rest);
    Block *taken = behind ? front : back;
    taken->state = State::live;
    give(behind ? *back : *front, anyone);
    return taken;
}

Block *Heap::take_dedicated(FreePool &pool, uint64_t size) {
    const uint64_t most = size + std::max(size / 8, segment_granule);
    constexpr auto zone = unsigned(Zone::dedicated);
    for (SizeTree *tree : {&pool.own[zone], &complete_[zone]}) {
        const SizeNode *node = tree->best(size);
        if (node && node->size <= most) {
            return cut(*node->block(), node->block()->size, false);
        }
    }
    return nullptr;
}

const SizeNode *Heap::offered_after(const FreePool &pool, const SizeNode &position, Zone zone) {
    const SizeTree &own = pool.own[unsigned(zone)];
    const SizeNode *node = own.after(position);
    while (node && !pool.registered && node->block()->tag > pool.recorded) {
        node = own.after(*node);
    }
    return node;
}

Block *Heap::take_offered(Block &block, uint64_t size) {
    return cut(block, size, false);
}

Block *Heap::cut(Block &block, uint64_t size, bool from_the_end) {
    unindex(block);
    Block *taken = &block;
    if (block.size != size) {
        taken = records_.take();
        taken->segment = block.segment;
        taken->zone = block.zone;
        taken->size = size;
        taken->begin = from_the_end ? block.end() - size : block.begin;
        Block *&outer = from_the_end ? block.right : block.left;
        (from_the_end ? taken->right : taken->left) = outer;
        (from_the_end ? taken->left : taken->right) = &block;
        if (outer) {
            (from_the_end ? outer->left : outer->right) = taken;
        }
        outer = taken;
        if (!from_the_end) {
            block.begin += size;
        }
        block.size -= size;
        block.dirty_begin = std::clamp(block.dirty_begin, block.begin, block.end());
        block.dirty_end = std::clamp(block.dirty_end, block.begin, block.end());
        if (!taken->left) {
            taken->segment->first = taken;
        }
        taken->state = State::live;
        index_remainder(block);
    } else if (block.pending.linked) {
        block.pool->pending.remove(block);
    }
    taken->state = State::live;
    taken->pool = nullptr;
    own(*taken);
    return taken;
}

// --- giving --------------------------------------------------------------------------------------

void Heap::give(Block &block, FreePool &pool, uint64_t tag) {
    block.expect_neighbours();
    forget_start(block);
    block.state = State::free;
    block.pool = &pool;
    block.tag = tag;
    const bool complete = pool.order == Order::anyone;
    block.dirty_begin = block.begin;
    block.dirty_end = complete ? block.begin : block.end();
    if (!complete) {
        pool.pending.push_back(block);
    }
    index(*coalesce(&block));
}

// Joins the block with its free neighbours; neither is indexed.
Block *Heap::coalesce(Block *block) {
    if (block->left && can_merge(*block->left, *block)) {
        unindex(*block->left);
        block = merge(*block->left, *block);
    }
    if (block->right && can_merge(*block, *block->right)) {
        unindex(*block->right);
        block = merge(*block, *block->right);
    }
    return block;
}

// Keeps the record that is pending, or pending for longer, so that its place in its free pool's
// list stays right.
Block *Heap::merge(Block &left, Block &right) {
    const bool keep_left = left.dirty() && (!right.dirty() || left.tag >= right.tag);
    Block &kept = keep_left ? left : right;
    Block &gone = keep_left ? right : left;
    if (gone.dirty()) {
        kept.dirty_begin = left.dirty_begin;
        kept.dirty_end = right.dirty_end;
    }
    if (gone.pending.linked) {
        gone.pool->pending.remove(gone);
    }
    kept.begin = left.begin;
    kept.size = left.size + right.size;
    if (!kept.dirty()) {
        kept.dirty_begin = kept.dirty_end = kept.begin;
    }
    kept.left = left.left;
    kept.right = right.right;
    (kept.left ? kept.left->right : kept.segment->first) = &kept;
    if (kept.right) {
        kept.right->left = &kept;
    }
    records_.give(&gone);
    return &kept;
}

void Heap::complete(FreePool &pool, uint64_t tag) {
    while (Block *block = pool.pending.first()) {
        if (block->tag > tag) {
            return;
        }
        const bool vacated = block->state == State::vacated;
        if (!vacated) {
            unindex(*block);
        }
        pool.pending.remove(*block);
        block->pool = &anyone;
        block->dirty_begin = block->dirty_end = block->begin;
        if (!vacated) {
            index(*coalesce(block));
        } else if (piece_at(block->begin).role == Role::former) {
            former_places_--;
            make_idle_place(*block);
        }
    }
}

// --- addresses -----------------------------------------------------------------------------------

void Heap::set_slab(Block &block, Slab *slab) {
    const Slab &cut = slab ? *slab : *block.slab;
    for (uint32_t i = 0; i < cut.count; i++) {
        block.segment->own(block.begin + uint64_t(i) * cut.slot_size,
                           slab ? reinterpret_cast<uintptr_t>(&slab->slots[i]) | slot_bit : 0);
    }
    block.slab = slab;
    if (slab) {
        block.state = State::slab;
    } else {
        own(block);
    }
}

BlockOrSlot Heap::starting_at(uint64_t address) const {
    const BlockOrSlot allocation = found_at(address);
    if (allocation.slot) {
        return allocation.slot->state == State::live ? allocation : BlockOrSlot{};
    }
    return allocation.block && allocation.block->state == State::live ? allocation : BlockOrSlot{};
}

bool Heap::is_mapped(uint64_t begin, uint64_t end) const {
    const Segment *segment = map_.find(begin);
    bool mapped = segment && end <= segment->end();
    for (uint64_t at = begin; mapped && at < end;) {
        const Piece piece = segment->pieces.at(at);
        mapped = piece.handle != 0;
        at = piece.end();
    }
    return mapped;
}

BlockOrSlot Heap::around(uint64_t address) const {
    const Segment *segment = map_.find(address);
    if (!segment) {
        return {};
    }
    const BlockOrSlot allocation = last_before(*segment, address);
    const uint64_t first = allocation.slot    ? allocation.slot->slab->address(*allocation.slot)
                           : allocation.block ? allocation.block->begin
                                              : 0;
    const uint64_t size = allocation.slot    ? allocation.slot->loan.size()
                          : allocation.block ? allocation.block->loan.size()
                                             : 0;
    return address - first < size ? allocation : BlockOrSlot{};
}

// Searches back from the address to the mark before it (segment.h), and returns the first block or
// slot that begins there. If none begins there, returns the one that covers the mark. Only a large
// block covers whole pages of the map.
BlockOrSlot Heap::last_before(const Segment &segment, uint64_t address) const {
    const uint64_t home = address / segment_granule * segment_granule;
    uint64_t from = address / granule * granule;
    for (uint64_t page = home;; page -= segment_granule, from = page + segment_granule - granule) {
        const Block *start = map_.page(page)->last_start(from);
        for (uint64_t at = from; at >= page && page + segment_granule >= home; at -= granule) {
            if (segment.owner(at) != 0 || (start && start->begin == at)) {
                return starting_at(at);
            }
        }
        if (start) {
            return starting_at(start->begin);
        }
        if (page == segment.base || page % cover_granule == 0) {
            return covering(segment, page, address);
        }
    }
}

// The slot or block that holds the address, if its block also was the last to hold the mark.
BlockOrSlot Heap::covering(const Segment &segment, uint64_t mark, uint64_t address) const {
    const Block *block = mark % cover_granule == 0 ? segment.cover(mark) : nullptr;
    const bool holds =
        block && block->segment == &segment && block->begin <= address && address < block->end();
    if (!holds) {
        return {};
    }
    const uint64_t step = block->state == State::slab ? block->slab->slot_size : block->size;
    return starting_at(block->begin + (address - block->begin) / step * step);
}

uint64_t Heap::largest_node(const SizeTree (&trees)[zones]) {
    uint64_t size = 0;
    for (const SizeTree &tree : trees) {
        const SizeNode *node = tree.largest();
        size = node ? std::max(size, node->size) : size;
    }
    return size;
}

uint64_t Heap::largest_free() const {
    uint64_t size = largest_complete();
    for (const Segment *segment = size == 0 ? segments_.first() : nullptr; segment;
         segment = segments_.next(*segment)) {
        for (const Block *block = segment->first; block; block = block->right) {
            const bool complete = block->state == State::free && !block->dirty();
            size = complete ? std::max(size, block->size) : size;
        }
    }
    return size;
}

} // namespace emm::pool
