#include "fill.h"

#include <algorithm>

namespace emm::pool {
namespace {

using PieceIterator = std::vector<Piece>::const_iterator;

// Whether the place is another place of one of the pieces.
bool is_one_of(const Piece &place, PieceIterator begin, PieceIterator end) {
    return std::any_of(begin, end, [&](const Piece &each) { return each.handle == place.handle; });
}

Piece piece_of(const Block &block) {
    return block.segment->pieces.at(block.begin);
}

} // namespace

Fill::Fill(Heap &heap, const FillPlan &plan, const Heap::Room *room, FreePool &pool,
           const std::vector<CUmemAccessDesc> &access, bool keeps_places)
    : heap_(heap), pool_(pool), pending_(plan.has_pending()), keeps_places_(keeps_places),
      sizes_(plan.sizes), access_(access), wanted_(plan.mapped) {
    std::vector<IdlePiece> chosen = plan.moved;
    chosen.insert(chosen.end(), plan.released.begin(), plan.released.end());
    std::sort(chosen.begin(), chosen.end(), [](const IdlePiece &a, const IdlePiece &b) {
        return a.piece.address < b.piece.address;
    });
    const std::vector<uint64_t> places = places_to_end(plan, room);
    moving_.pieces.reserve(plan.moved.size());
    leaving_.pieces.reserve(plan.released.size());
    kept_.reserve(plan.moved.size());
    kept_pieces_.reserve(plan.moved.size());
    pieces_.reserve(plan.moved.size() + sizes_.size());
    ending_.reserve(places.size());
    rests_.reserve(places.size() + 2);
    heap_.reserve_records(2 * (chosen.size() + places.size()) + 5);
    promise_.emplace(heap_, places.size() + plan.moved.size());
    for (Block *block : heap_.take_pieces(chosen, pool_)) {
        const bool moves =
            std::any_of(plan.moved.begin(), plan.moved.end(), [block](const IdlePiece &each) {
                return each.piece.address == block->begin;
            });
        if (!moves) {
            leaving_.pieces.push_back(piece_of(*block));
        } else if (!keeps_places_ && block->state != State::vacated) {
            moving_.pieces.push_back(piece_of(*block));
        } else {
            kept_.push_back(block);
        }
    }
    keep_places();
    if (room) {
        take_target(*room);
    }
    end_places(places);
}

// Complete blocks come before pending ones; both keep the order of addresses.
void Fill::keep_places() {
    const auto is_complete = [](const Block *block) { return block->state != State::vacated; };
    std::stable_partition(kept_.begin(), kept_.end(), is_complete);
    for (const Block *block : kept_) {
        Piece piece = piece_of(*block);
        piece.other = piece.address;
        kept_pieces_.push_back(piece);
        complete_ += is_complete(block);
    }
}

// The places that must end, by address: those at the target, those of pieces that go or may have no
// more places, and the oldest of all if there are too many.
std::vector<uint64_t> Fill::places_to_end(const FillPlan &plan, const Heap::Room *room) const {
    std::vector<uint64_t> places = plan.ended;
    const uint64_t begin = room ? room->begin(wanted_) : 0;
    for (uint64_t at = begin; room && at < begin + wanted_;) {
        const Piece piece = room->range->segment->pieces.at(at);
        if (piece) {
            places.push_back(piece.address);
        }
        at = piece ? piece.end() : at + page_bytes;
    }
    for (const IdlePiece &each : plan.moved) {
        keeps_places_ || each.pending ? heap_.add_surplus_place(each.piece, places)
                                      : heap_.add_further_places(each.piece, places);
    }
    for (const IdlePiece &each : plan.released) {
        heap_.add_further_places(each.piece, places);
    }
    const std::vector<uint64_t> &idle = heap_.idle_places();
    const size_t all = heap_.further_places() + plan.moved.size();
    if (all > most_idle_places) {
        const size_t oldest =
            std::min({all - most_idle_places, ended_at_once(plan.moved.size()), idle.size()});
        places.insert(places.end(), idle.begin(), idle.begin() + ptrdiff_t(oldest));
    }
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    return places;
}

void Fill::take_target(const Heap::Room &room) {
    spills_ = room.range->segment->spilled();
    const uint64_t begin = room.begin(wanted_);
    target_ = heap_.take_unmapped(begin, begin + wanted_);
    taken_begin_ = target_->begin;
    taken_end_ = target_->end();
    if (taken_begin_ < begin) {
        rests_.push_back(target_);
        target_ = heap_.split(*target_, begin - taken_begin_);
    }
    if (begin + wanted_ < taken_end_) {
        rests_.push_back(heap_.split(*target_, wanted_));
    }
    spare_ = heap_.take_record();
}

void Fill::end_places(const std::vector<uint64_t> &places) {
    for (const uint64_t place : places) {
        ending_.push_back(heap_.piece_at(place));
        const bool within = taken_begin_ <= place && place < taken_end_;
        if (Block *block = heap_.begin_to_end(place, within)) {
            rests_.push_back(block);
        }
    }
}

// If the driver refuses to end a place, that matters in two cases: the place is at the target, or
// its piece must have no further place once it has moved. Otherwise the place may stay, and its
// piece has one too many.
CUresult Fill::unmap_places(const PageDriver &driver, CUresult &refusal) {
    ended_ = driver.unmap(ending_, ending_.size(), heap_, refusal);
    const auto is_needed = [&](const Piece &place) {
        const bool in_the_way =
            target_ && place.address < target_->begin + wanted_ && target_->begin < place.end();
        return in_the_way || is_one_of(place, moving_.pieces.begin(), moving_.pieces.end());
    };
    return std::any_of(ending_.begin() + ptrdiff_t(ended_), ending_.end(), is_needed)
               ? refusal
               : CUDA_SUCCESS;
}

// Releases the leaving pieces, except those still mapped at a further place.
CUresult Fill::release_leaving(const PageDriver &driver) {
    const auto may_go = [&](const Piece &piece) {
        return !is_one_of(piece, ending_.begin() + ptrdiff_t(ended_), ending_.end());
    };
    std::vector<Piece> &pieces = leaving_.pieces;
    const auto staying = std::stable_partition(pieces.begin(), pieces.end(), may_go);
    CUresult result = CUDA_SUCCESS;
    leaving_.done = driver.unmap(pieces, size_t(staying - pieces.begin()), heap_, result);
    for (size_t i = 0; i < leaving_.done; i++) {
        driver.release(pieces[i], refused_);
    }
    return result;
}

// Places end first, because their number for a piece is bounded, and the target's addresses must be
// free. Then pieces are given back, then new ones are made, then pieces move. So if there is no new
// memory, nothing has moved; and new memory is made only after everything that makes room for it
// has gone.
CUresult Fill::ask(const PageDriver &driver) {
    CUresult refusal = CUDA_SUCCESS;
    CUresult result = unmap_places(driver, refusal);
    if (result == CUDA_SUCCESS) {
        const CUresult kept = release_leaving(driver);
        refusal = refusal == CUDA_SUCCESS ? kept : refusal;
        result = !target_ || leaving_.done < leaving_.pieces.size() ? refusal : CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        result = driver.create(sizes_, pieces_, refused_, spills_);
    }
    if (result == CUDA_SUCCESS) {
        moving_.done = driver.unmap(moving_.pieces, moving_.pieces.size(), heap_, result);
    }
    for (Piece &piece : moving_.pieces) {
        piece.other = 0;
    }
    if (result == CUDA_SUCCESS) {
        const auto pending = kept_pieces_.begin() + ptrdiff_t(complete_);
        pieces_.insert(pieces_.begin(), kept_pieces_.begin(), pending);
        pieces_.insert(pieces_.end(), pending, kept_pieces_.end());
    }
    pieces_.insert(pieces_.begin(), moving_.pieces.begin(),
                   moving_.pieces.begin() + ptrdiff_t(moving_.done));
    if (target_) {
        mapped_ = driver.map(*target_, pieces_, moving_.done, access_, result, refused_);
    }
    return result;
}

void Fill::apply_results(Holdings &holdings) {
    for (size_t i = 0; i < ending_.size(); i++) {
        i < ended_ ? heap_.end_place(ending_[i].address) : heap_.keep_place(ending_[i].address);
    }
    for (Block *block : rests_) {
        heap_.make_unmapped(*block);
    }
    hand_back(holdings, leaving_);
    hand_back(holdings, moving_);
    if (target_) {
        apply_target_result(holdings);
    }
}

void Fill::apply_target_result(Holdings &holdings) {
    uint64_t bytes = 0;
    size_t moved = 0; // index of the kept blocks
    for (size_t i = 0; i < mapped_; i++) {
        const Piece &piece = pieces_[i];
        bytes += piece.bytes;
        target_->segment->pieces.add({piece.address, piece.bytes, piece.handle, 0, piece.spilled});
        if (piece.other) {
            holdings.remove(piece.bytes);
            heap_.link(*kept_[moved++], piece.address);
        }
    }
    for (; moved < kept_.size(); moved++) {
        heap_.reoccupy(*kept_[moved]);
    }
    holdings.add(bytes, spills_);
    if (bytes > 0 && bytes < target_->size) {
        heap_.make_unmapped(*heap_.split(*target_, bytes, *spare_));
    } else {
        heap_.give_record(spare_);
    }
    bytes > 0 ? heap_.give(*target_, pending_ ? pool_ : heap_.anyone)
              : heap_.make_unmapped(*target_);
}

void Fill::hand_back(Holdings &holdings, const Parting &parting) {
    for (size_t i = 0; i < parting.pieces.size(); i++) {
        Block &block = *heap_.found_at(parting.pieces[i].address).block;
        if (i < parting.done) {
            block.segment->pieces.remove(piece_of(block));
            holdings.remove(block.size, block.segment->spilled());
            heap_.make_unmapped(block);
        } else {
            heap_.give(block, heap_.anyone);
        }
    }
}

} // namespace emm::pool
