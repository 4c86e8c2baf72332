// Memory goes back to the driver: idle pieces and idle places in a trim, whole segments, and pieces
// that the driver refused before.
#include "pages.h"

#include "policy/effort.h"

#include <algorithm>
#include <set>

namespace emm::pool {

// Spilled pieces go first, then pieces of the smallest parts of free memory. Pieces go as a whole,
// so a little less than `keep` may stay. No piece that goes is in use. A trim also ends all idle
// places. A piece that stays, because the driver refuses to unmap it, is not tried twice.
uint64_t Pages::release_idle(Lock &lock, uint64_t keep, bool complete_only) {
    const uint64_t before = holdings_.reserved();
    return_refused(lock);
    access_.await(lock);
    std::vector<uint64_t> places = complete_only ? std::vector<uint64_t>() : heap_.idle_places();
    std::set<uint64_t> staying; // handles
    while (!moves_.returns_are_deferred() && (holdings_.cached() > keep || !places.empty())) {
        FillPlan plan;
        plan.ended.swap(places);
        uint64_t missing = holdings_.cached() - std::min(holdings_.cached(), keep);
        for (const bool spilled : {true, false}) {
            for (const IdlePiece &each :
                 heap_.idle_pieces(nullptr, parts_to_release + staying.size(), {}, spilled)) {
                if (missing > 0 && !staying.contains(each.piece.handle)) {
                    plan.released.push_back(each);
                    missing -= std::min(missing, each.piece.bytes);
                }
            }
        }
        if (plan.released.empty() && plan.ended.empty()) {
            break;
        }
        execute(lock, order_.common(), plan, nullptr);
        for (const IdlePiece &each : plan.released) {
            if (heap_.piece_at(each.piece.address).handle == each.piece.handle) {
                staying.insert(each.piece.handle);
            }
        }
        access_.await(lock);
    }
    return before - std::min(before, holdings_.reserved());
}

// Pieces belong to the device, so they go back even if the context is gone. Refused segments are
// kept and tried again, because a program under the thread sanitizer has few addresses to lose.
void Pages::give_back(List<Segment, &Segment::all> segments) {
    std::vector<Piece> pieces;
    {
        const Lock lock(context_.mutex);
        while (Segment *segment = refused_.pop_front()) {
            segments.push_back(*segment);
        }
        pieces.swap(refused_pieces_);
    }
    give_back(pieces);
    if (!segments.empty() && !has_finished()) {
        const Lock lock(context_.mutex);
        while (Segment *segment = segments.pop_front()) {
            refused_.push_back(*segment);
        }
    }
    for (Segment *segment = segments.first(); segment; segment = segments.next(*segment)) {
        Refused refused;
        const uint64_t bytes = driver_.give_back(*segment, segments, refused);
        const Lock lock(context_.mutex);
        holdings_.remove(bytes, segment->spilled());
        keep_refused(refused);
    }
    const Lock lock(context_.mutex);
    while (Segment *segment = segments.pop_front()) {
        if (segment->refused) {
            refused_.push_back(*segment);
        } else {
            delete segment;
        }
    }
}

// False: work of the context may still use the memory. A lost context does no more work. At the
// pool's end the memory goes back in any case: the program has given it up, and nothing is left to
// try again.
bool Pages::has_finished() {
    for (int tries = 0; tries < 2 && context_.lives() && context_.serves(); tries++) {
        if (order_.await_work() == CUDA_SUCCESS) { // cuMemUnmap waits for nothing
            return true;
        }
    }
    return ends_ || !context_.lives() || !context_.serves();
}

// The same for pieces that are mapped nowhere.
void Pages::give_back(const std::vector<Piece> &pieces) {
    Refused refused;
    for (const Piece &piece : pieces) {
        driver_.release(piece, refused);
    }
    const Lock lock(context_.mutex);
    for (const Piece &piece : pieces) {
        holdings_.remove(piece.bytes, piece.spilled);
    }
    keep_refused(refused);
}

// Refused pieces count as held. Without host memory for the list they are not tried again.
void Pages::keep_refused(const Refused &refused) {
    holdings_.add(refused.bytes - refused.spilled);
    holdings_.add(refused.spilled, true);
    try {
        refused_pieces_.insert(refused_pieces_.end(), refused.pieces.begin(), refused.pieces.end());
    } catch (const std::bad_alloc &) {
    }
}

void Pages::return_refused(Lock &lock) {
    if ((!refused_pieces_.empty() || !refused_.empty()) && !moves_.returns_are_deferred()) {
        const Moves::Move move(moves_);
        const Unlocked unlocked(lock);
        give_back(List<Segment, &Segment::all>());
    }
}

} // namespace emm::pool
