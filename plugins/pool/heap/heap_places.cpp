// A piece in several places: physical memory that is mapped at several addresses. One of them owns
// it; at the others are vacated blocks, which no request gets. The places are a ring.
#include "heap.h"

#include <algorithm>

namespace emm::pool {

uint64_t Heap::next_place(uint64_t address) const {
    const uint64_t next = map_.find(address)->pieces.at(address).other;
    return next ? next : address;
}

// A piece that goes gives up its former places, which are complete where it is. One that is pending
// keeps them; if it has as many as it may, one that is complete makes room.
bool Heap::may_leave(const Piece &piece, bool pending) const {
    unsigned places = 1;
    bool any_complete = false;
    for (uint64_t at = piece.other; at != 0 && at != piece.address; at = next_place(at)) {
        const Block *former = found_at(at).block;
        if (!former || !former->low.linked()) { // it is on its way to the driver
            return false;
        }
        any_complete = any_complete || !former->pending.linked;
        places++;
    }
    return !pending || places < most_places_ || any_complete;
}

// Each free block that is dirty leads to the pieces that it is a part of. Blocks of less than a
// quarter of a page are not looked at first: there may be many of them.
void Heap::add_pending_pieces(const Block *spared, size_t parts,
                              const std::vector<Ordered> &ordered,
                              std::vector<IdlePiece> &found) const {
    const size_t before = found.size();
    const auto is_usable = [&](const Block &block) {
        return block.state == State::free && &block != spared && !block.segment->spilled() &&
               (!block.dirty() ||
                std::any_of(ordered.begin(), ordered.end(), [&](const Ordered &each) {
                    return each.pool == block.pool && block.tag <= each.tag;
                }));
    };
    const auto consider = [&](const Piece &piece, Block *block) {
        bool pending = false;
        while (is_usable(*block) && block->begin > piece.address) {
            block = block->left;
        }
        Block *const first = block;
        for (; block && block->begin < piece.end(); block = block->right) {
            if (!is_usable(*block)) {
                return;
            }
            pending = pending || (block->dirty_begin < piece.end() &&
                                  piece.address < block->dirty_end && block->dirty());
        }
        if (pending && may_leave(piece, true)) {
            found.push_back({piece, first->size, first, true});
        }
    };
    for (const Ordered &each : ordered) {
        for (const SizeTree &own : each.pool->own) {
            const SizeNode *node = own.best(page_bytes / 4);
            for (; node && parts > 0; node = own.after(*node), parts--) {
                Block *block = node->block();
                const Pieces &pieces = block->segment->pieces;
                for (Piece piece = pieces.at(block->begin); piece && is_usable(*block);
                     piece = piece.end() < block->end() ? pieces.at(piece.end()) : Piece{}) {
                    consider(piece, block);
                }
            }
        }
    }
    const auto first = found.begin() + ptrdiff_t(before);
    std::sort(first, found.end(), [](const IdlePiece &a, const IdlePiece &b) {
        return a.piece.address < b.piece.address;
    });
    found.erase(std::unique(first, found.end(),
                            [](const IdlePiece &a, const IdlePiece &b) {
                                return a.piece.address == b.piece.address;
                            }),
                found.end());
}

// What work may still use there is `pool`'s from now on: its next event covers that work.
void Heap::vacate(Block &block, FreePool &pool) {
    block.pool->pending.remove(block);
    block.state = State::vacated;
    block.pool = &pool;
    block.tag = now();
    block.dirty_begin = block.begin;
    block.dirty_end = block.end();
    pool.pending.push_back(block);
}

// The ring goes up, but for one step.
void Heap::join_ring(uint64_t member, uint64_t place) {
    const auto is_between = [&](uint64_t before, uint64_t behind) {
        return before < behind ? before < place && place < behind
                               : before < place || place < behind;
    };
    while (!is_between(member, next_place(member))) {
        member = next_place(member);
    }
    const uint64_t next = next_place(member);
    map_.find(member)->pieces.set_other(member, place);
    map_.find(place)->pieces.set_other(place, next);
}

void Heap::leave_ring(uint64_t place) {
    const uint64_t next = next_place(place);
    uint64_t before = next;
    while (next_place(before) != place) {
        before = next_place(before);
    }
    map_.find(before)->pieces.set_other(before, before == next ? 0 : next);
}

void Heap::link(Block &vacated, uint64_t new_place) {
    join_ring(vacated.begin, new_place);
    vacated_.insert(vacated.low, vacated.size, vacated.begin);
    vacated_places_++;
}

void Heap::reoccupy(Block &vacated) {
    disown(vacated);
    vacated.state = State::free;
    index(*coalesce(&vacated));
}

void Heap::take_vacated(const std::vector<IdlePiece> &leaving, std::vector<Block *> &ret_taken) {
    const auto take = [&](Block &block, uint64_t owner) {
        vacated_.remove(block.low);
        vacated_places_--;
        if (block.pending.linked) {
            block.pool->pending.remove(block);
        }
        block.state = State::waiting;
        leave_ring(block.begin);
        block.segment->pieces.set_other(block.begin, owner); // to come back to, if it stays
        ret_taken.push_back(&block);
    };
    for (const IdlePiece &each : leaving) {
        const uint64_t owner = each.piece.address;
        unsigned places = 1;
        Block *complete = nullptr;
        for (uint64_t at = next_place(owner); at != owner; places++) {
            Block *former = found_at(at).block;
            at = next_place(at);
            if (!each.pending) {
                take(*former, owner);
            }
            complete = former->pending.linked ? complete : former;
        }
        if (each.pending && places == most_places_) {
            take(*complete, owner);
        }
    }
    std::sort(ret_taken.begin(), ret_taken.end(),
              [](const Block *a, const Block *b) { return a->begin < b->begin; });
}

void Heap::keep_place(Block &block) {
    block.state = State::vacated;
    block.pool = &anyone;
    block.dirty_begin = block.dirty_end = block.begin;
    join_ring(block.segment->pieces.at(block.begin).other, block.begin);
    vacated_.insert(block.low, block.size, block.begin);
    vacated_places_++;
}

} // namespace emm::pool
