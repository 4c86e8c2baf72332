#include "fill.h"

#include <algorithm>

namespace emm::pool {

Fill::Fill(Heap &heap, const FillPlan &plan, const Heap::Room *room, FreePool &pool,
           const std::vector<CUmemAccessDesc> &access)
    : heap_(heap), pool_(pool), sizes_(plan.sizes), access_(access) {
    std::vector<IdlePiece> chosen;
    chosen.reserve(plan.moved.size() + plan.released.size());
    moving_.reserve(plan.moved.size());
    doubled_.reserve(plan.moved.size());
    leaving_.reserve(plan.released.size());
    gone_.reserve(plan.released.size());
    moved_pieces_.reserve(plan.moved.size());
    doubled_pieces_.reserve(plan.moved.size());
    pieces_.reserve(plan.moved.size() + sizes_.size());
    chosen = plan.moved;
    chosen.insert(chosen.end(), plan.released.begin(), plan.released.end());
    std::sort(chosen.begin(), chosen.end(), [](const IdlePiece &a, const IdlePiece &b) {
        return a.piece.address < b.piece.address;
    });
    heap_.reserve_records(2 * chosen.size() + 5);
    ending_.reserve(heap_.vacated_places());
    ended_.reserve(heap_.vacated_places());
    for (Block *block : heap_.take_pieces(chosen, pool_)) {
        const bool moves =
            std::any_of(plan.moved.begin(), plan.moved.end(), [block](const IdlePiece &each) {
                return each.piece.address == block->begin;
            });
        if (block->state == State::vacated) {
            doubled_.push_back(block);
            Piece piece = block->segment->pieces.at(block->begin);
            piece.other = piece.address;
            doubled_pieces_.push_back(piece);
        } else {
            (moves ? moving_ : leaving_).push_back(block);
        }
    }
    heap_.take_vacated(chosen, ending_);
    if (room) {
        spills_ = room->range->segment->spilled();
        target_ = heap_.take_unmapped(*room, plan.mapped);
        spare_ = heap_.take_record();
    }
}

// Former places come first: a piece has so many at most. Then what is given back, then new memory,
// then what moves: if there is no new memory, nothing has moved.
CUresult Fill::ask(const PageDriver &driver) {
    CUresult result = CUDA_SUCCESS;
    driver.unmap(ending_, ended_, result);
    if (result == CUDA_SUCCESS) {
        left_ = driver.unmap(leaving_, gone_, result);
    }
    for (const Piece &piece : gone_) {
        driver.release(piece, refused_);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.create(sizes_, pieces_, refused_, spills_);
    }
    if (result == CUDA_SUCCESS) {
        moved_ = driver.unmap(moving_, moved_pieces_, result);
    }
    for (Piece &piece : moved_pieces_) {
        piece.other = 0;
    }
    pieces_.insert(pieces_.begin(), moved_pieces_.begin(), moved_pieces_.end());
    if (result == CUDA_SUCCESS) {
        pieces_.insert(pieces_.end(), doubled_pieces_.begin(), doubled_pieces_.end());
    }
    if (target_) {
        mapped_ = driver.map(*target_, pieces_, moved_, access_, result, refused_);
    }
    return result;
}

void Fill::settle(Holdings &holdings) {
    settle_places(holdings);
    hand_back(holdings, leaving_, left_);
    hand_back(holdings, moving_, moved_);
    if (!target_) {
        return;
    }
    holdings.add(mapped_, spills_);
    if (mapped_ > 0 && mapped_ < target_->size) {
        heap_.make_unmapped(*heap_.split(*target_, mapped_, *spare_));
    } else {
        heap_.give_record(spare_);
    }
    mapped_ > 0 ? heap_.give(*target_, !doubled_.empty() ? pool_ : heap_.anyone)
                : heap_.make_unmapped(*target_);
}

void Fill::settle_places(Holdings &holdings) {
    for (size_t i = 0; i < ending_.size(); i++) {
        i < ended_.size() ? heap_.make_unmapped(*ending_[i]) : heap_.keep_place(*ending_[i]);
    }
    const uint64_t mapped_end = target_ ? target_->begin + mapped_ : 0;
    const auto is_mapped = [&](const Piece &piece) {
        return piece.other != 0 && piece.address != piece.other && piece.end() <= mapped_end;
    };
    size_t i = 0;
    for (const Piece &piece : pieces_) {
        if (is_mapped(piece)) {
            holdings.remove(piece.bytes);
            heap_.link(*doubled_[i++], piece.address);
        }
    }
    for (; i < doubled_.size(); i++) {
        heap_.reoccupy(*doubled_[i]);
    }
}

void Fill::hand_back(Holdings &holdings, const std::vector<Block *> &blocks, size_t taken_away) {
    for (size_t i = 0; i < blocks.size(); i++) {
        Block &block = *blocks[i];
        if (i < taken_away) {
            holdings.remove(block.size, block.segment->spilled());
            heap_.make_unmapped(block);
        } else {
            heap_.give(block, heap_.anyone);
        }
    }
}

} // namespace emm::pool
