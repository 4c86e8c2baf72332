#include "fill.h"

#include <algorithm>

namespace emm::pool {

Fill::Fill(Heap &heap, const FillPlan &plan, const Heap::Room *room,
           const std::vector<CUmemAccessDesc> &access)
    : heap_(heap), sizes_(plan.sizes), access_(access) {
    std::vector<IdlePiece> chosen;
    chosen.reserve(plan.moved.size() + plan.released.size());
    moving_.reserve(plan.moved.size());
    leaving_.reserve(plan.released.size());
    gone_.reserve(plan.released.size());
    pieces_.reserve(plan.moved.size() + sizes_.size());
    chosen = plan.moved;
    chosen.insert(chosen.end(), plan.released.begin(), plan.released.end());
    std::sort(chosen.begin(), chosen.end(), [](const IdlePiece &a, const IdlePiece &b) {
        return a.piece.address < b.piece.address;
    });
    heap_.reserve_records(3 * chosen.size() + 5);
    for (Block *block : heap_.take_pieces(chosen)) {
        const bool moves =
            std::any_of(plan.moved.begin(), plan.moved.end(), [block](const IdlePiece &each) {
                return each.piece.address == block->begin;
            });
        (moves ? moving_ : leaving_).push_back(block);
    }
    if (room) {
        target_ = heap_.take_unmapped(*room, plan.mapped);
        spare_ = heap_.take_record();
    }
}

// What is given back comes first, then new memory, then what moves: if there is no new memory,
// nothing has moved.
CUresult Fill::ask(const PageDriver &driver) {
    CUresult result = CUDA_SUCCESS;
    left_ = driver.unmap(leaving_, gone_, result);
    for (const Piece &piece : gone_) {
        driver.release(piece, refused_);
    }
    if (result == CUDA_SUCCESS) {
        result = driver.create(sizes_, pieces_, refused_);
    }
    const size_t made = pieces_.size();
    if (result == CUDA_SUCCESS) {
        moved_ = driver.unmap(moving_, pieces_, result);
    }
    std::rotate(pieces_.begin(), pieces_.begin() + ptrdiff_t(made), pieces_.end());
    if (target_) {
        mapped_ = driver.map(*target_, pieces_, moved_, access_, result, refused_);
    }
    return result;
}

void Fill::settle(Holdings &holdings) {
    hand_back(holdings, leaving_, left_);
    hand_back(holdings, moving_, moved_);
    if (!target_) {
        return;
    }
    holdings.add(mapped_);
    if (mapped_ > 0 && mapped_ < target_->size) {
        heap_.make_unmapped(*heap_.split(*target_, mapped_, *spare_));
    } else {
        heap_.give_record(spare_);
    }
    mapped_ > 0 ? heap_.give(*target_, heap_.anyone) : heap_.make_unmapped(*target_);
}

void Fill::hand_back(Holdings &holdings, const std::vector<Block *> &blocks, size_t taken_away) {
    for (size_t i = 0; i < blocks.size(); i++) {
        Block &block = *blocks[i];
        if (i < taken_away) {
            holdings.remove(block.size);
            heap_.make_unmapped(block);
        } else {
            heap_.give(block, heap_.anyone);
        }
    }
}

} // namespace emm::pool
