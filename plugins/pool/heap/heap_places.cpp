// A piece in several places: physical memory that is mapped at several addresses. One of them owns
// it. While work may use the others, they are vacated blocks, which no request gets; afterwards
// they are idle parts of unmapped ranges. The places form a ring.
#include "heap.h"

#include <algorithm>

namespace emm::pool {

uint64_t Heap::next_place(uint64_t address) const {
    const uint64_t next = map_.find(address)->pieces.at(address).other;
    return next ? next : address;
}

// If a pending piece has the most places that it may have, one of them must be idle, so that it can
// end.
bool Heap::may_leave(const Piece &piece, bool pending) const {
    unsigned places = 1;
    bool any_idle = false;
    for (uint64_t at = piece.other; at != 0 && at != piece.address; at = next_place(at)) {
        const Role role = piece_at(at).role;
        if (role == Role::ending) {
            return false;
        }
        any_idle = any_idle || role == Role::idle;
        places++;
    }
    return !pending || places < most_places_ || any_idle;
}

// Each dirty free block leads to the pieces that it is part of. Blocks of less than a quarter of a
// page are left out at first, because there may be many of them.
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

// Work that may still use the block is `pool`'s from now on: the pool's next event covers that
// work.
void Heap::vacate(Block &block, FreePool &pool) {
    block.pool->pending.remove(block);
    block.state = State::vacated;
    block.pool = &pool;
    block.tag = now();
    block.dirty_begin = block.begin;
    block.dirty_end = block.end();
    pool.pending.push_back(block);
}

// The ring ascends, except for one step.
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
    pool::leave_ring(place, [this](uint64_t at) -> Pieces & { return map_.find(at)->pieces; });
}

Heap::Promise::Promise(Heap &heap, size_t count) : heap_(heap), count_(count) {
    std::vector<uint64_t> &places = heap_.idle_places_;
    const size_t needed = places.size() + heap_.former_places_ + heap_.promised_places_ + count_;
    if (needed > places.capacity()) {
        places.reserve(std::max(needed, 2 * places.capacity()));
    }
    heap_.promised_places_ += count_;
}

void Heap::make_idle_place(Block &block) {
    block.segment->pieces.set_role(block.begin, Role::idle);
    idle_places_.push_back(block.begin);
    make_unmapped(block);
}

// The work that may use the block may have completed since the block was taken.
void Heap::link(Block &block, uint64_t new_place) {
    join_ring(block.begin, new_place);
    make_idle_once_complete(block);
}

void Heap::make_idle_once_complete(Block &block) {
    if (block.pending.linked) {
        block.segment->pieces.set_role(block.begin, Role::former);
        former_places_++;
    } else {
        make_idle_place(block);
    }
}

void Heap::reoccupy(Block &block) {
    if (block.state != State::vacated) {
        give(block, anyone);
        return;
    }
    forget_start(block);
    block.state = State::free;
    index(*coalesce(&block));
}

// --- back to a former place ----------------------------------------------------------------------

void Heap::go_back(const std::vector<IdlePiece> &pieces, uint64_t place, FreePool &pool) {
    std::vector<IdlePiece> leaving = pieces;
    std::sort(leaving.begin(), leaving.end(), [](const IdlePiece &a, const IdlePiece &b) {
        return a.piece.address < b.piece.address;
    });
    reserve_records(2 * leaving.size() + 2);
    const Promise promise(*this, leaving.size());
    const std::vector<Block *> left = take_pieces(leaving, pool);
    uint64_t end = place;
    for (const IdlePiece &each : pieces) {
        map_.find(end)->pieces.set_role(end, Role::owner);
        forget_idle(end);
        end += each.piece.bytes;
    }
    Block *target = take_unmapped(place, end);
    const bool pending = std::any_of(left.begin(), left.end(),
                                     [](const Block *block) { return block->pending.linked; });
    for (Block *block : left) {
        make_idle_once_complete(*block);
    }
    give(*target, pending ? pool : anyone);
}

// --- the end of a place --------------------------------------------------------------------------

void Heap::forget_idle(uint64_t place) {
    idle_places_.erase(std::find(idle_places_.begin(), idle_places_.end(), place));
}

void Heap::add_further_places(const Piece &piece, std::vector<uint64_t> &ret_places) const {
    for (uint64_t at = piece.other; at != 0 && at != piece.address; at = next_place(at)) {
        ret_places.push_back(at);
    }
}

// Adds the oldest idle place; for a complete piece any place would do.
void Heap::add_surplus_place(const Piece &piece, std::vector<uint64_t> &ret_places) const {
    std::vector<uint64_t> places;
    add_further_places(piece, places);
    if (places.size() + 1 < most_places_) {
        return;
    }
    const auto is_its = [&](uint64_t place) {
        return std::find(places.begin(), places.end(), place) != places.end();
    };
    const auto oldest = std::find_if(idle_places_.begin(), idle_places_.end(), is_its);
    ret_places.push_back(oldest != idle_places_.end() ? *oldest : places.front());
}

Block *Heap::begin_to_end(uint64_t place, bool within) {
    const Piece piece = piece_at(place);
    map_.find(place)->pieces.set_role(place, Role::ending);
    if (piece.role == Role::idle) {
        forget_idle(place);
        return within ? nullptr : take_unmapped(place, piece.end());
    }
    Block *block = found_at(place).block;
    if (block->pending.linked) {
        block->pool->pending.remove(*block);
    }
    former_places_--;
    block->state = State::waiting;
    block->pool = nullptr;
    return block;
}

void Heap::end_place(uint64_t place) {
    leave_ring(place);
    Pieces &pieces = map_.find(place)->pieces;
    pieces.remove(pieces.at(place));
}

void Heap::keep_place(uint64_t place) {
    map_.find(place)->pieces.set_role(place, Role::idle);
    idle_places_.push_back(place);
}

} // namespace emm::pool
