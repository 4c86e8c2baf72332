// A piece in two places: physical memory that is mapped at two addresses. One of them owns it; the
// other one is a vacated block, which no request gets.
#include "heap.h"

#include <algorithm>

namespace emm::pool {

// A piece has two places at most. The second one, if there is one, is given up first: it has to be
// complete, as it is where the piece itself is complete.
bool Heap::may_leave(const Piece &piece, bool pending) const {
    const Block *other = piece.other ? found_at(piece.other).block : nullptr;
    return !piece.other ||
           (other && other->state == State::vacated && !(pending && other->pending.linked));
}

// Each free block that is dirty leads to the pieces that it is a part of. Blocks of less than a
// quarter of a page are not looked at first: there may be many of them.
void Heap::add_pending_pieces(const Block *spared, size_t parts,
                              const std::vector<Ordered> &ordered,
                              std::vector<IdlePiece> &found) const {
    const size_t before = found.size();
    const auto is_usable = [&](const Block &block) {
        return block.state == State::free && &block != spared &&
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

void Heap::link(Block &vacated, uint64_t second_place) {
    vacated.segment->pieces.set_other(vacated.begin, second_place);
    vacated_.insert(vacated.low, vacated.size, vacated.begin);
    vacated_places_++;
}

void Heap::reoccupy(Block &vacated) {
    disown(vacated);
    vacated.state = State::free;
    index(*coalesce(&vacated));
}

void Heap::take_vacated(const std::vector<IdlePiece> &leaving, std::vector<Block *> &ret_taken) {
    const auto take = [&](Block &block) {
        vacated_.remove(block.low);
        vacated_places_--;
        if (block.pending.linked) {
            block.pool->pending.remove(block);
        }
        block.state = State::waiting;
        ret_taken.push_back(&block);
    };
    for (const IdlePiece &each : leaving) {
        if (each.piece.other) {
            take(*found_at(each.piece.other).block);
        }
    }
    SizeNode position;
    while (const SizeNode *node = vacated_.after(position)) {
        position.size = node->size;
        position.address = node->address;
        if (!node->block()->pending.linked) {
            take(*node->block());
        }
    }
    std::sort(ret_taken.begin(), ret_taken.end(),
              [](const Block *a, const Block *b) { return a->begin < b->begin; });
}

void Heap::end_place(Block &block, const Piece &piece) {
    Pieces &pieces = map_.find(piece.other)->pieces;
    if (pieces.at(piece.other).other == piece.address) {
        pieces.set_other(piece.other, 0);
    }
    make_unmapped(block);
}

void Heap::keep_place(Block &block) {
    block.state = State::vacated;
    block.pool = &anyone;
    block.dirty_begin = block.dirty_end = block.begin;
    vacated_.insert(block.low, block.size, block.begin);
    vacated_places_++;
}

} // namespace emm::pool
