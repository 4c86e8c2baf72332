// A pool that is paused: its pieces keep their addresses and have no handle. Host memory stays.
#include "pages.h"

#include <algorithm>

namespace emm::pool {
namespace {

bool overlaps(const Piece &piece, const std::vector<Range> &ranges) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const Range &range) {
        return piece.address < range.end && range.begin < piece.end();
    });
}

// Everything but memory that is free and complete: what a graph or a stream may use is kept.
std::vector<Range> used_ranges(const Segment &segment) {
    std::vector<Range> used;
    for (const Block *block = segment.first; block; block = block->right) {
        const bool idle = block->state == State::unmapped || block->state == State::vacated ||
                          (block->state == State::free && !block->dirty());
        if (!idle) {
            used.push_back({block->begin, block->end()});
        }
    }
    return used;
}

// By the address: the driver is paid by the call.
std::vector<Range> joined(const std::vector<Piece> &pieces) {
    std::vector<Range> runs;
    for (const Piece &piece : pieces) {
        if (!runs.empty() && runs.back().end == piece.address) {
            runs.back().end = piece.end();
        } else {
            runs.push_back({piece.address, piece.end()});
        }
    }
    return runs;
}

} // namespace

template <class Choose> std::vector<Piece> Pages::pieces_where(Choose choose) const {
    std::vector<Piece> chosen;
    for (Segment *s = heap_.first_segment(); s; s = heap_.next_segment(*s)) {
        s->pieces.each([&](const Piece &piece) {
            if (choose(piece)) {
                chosen.push_back(piece);
            }
        });
    }
    std::sort(chosen.begin(), chosen.end(),
              [](const Piece &a, const Piece &b) { return a.address < b.address; });
    return chosen;
}

std::vector<Range> Pages::content_of(const std::vector<Piece> &pieces) const {
    std::vector<Range> used;
    for (Segment *s = heap_.first_segment(); s; s = heap_.next_segment(*s)) {
        const std::vector<Range> its = used_ranges(*s);
        used.insert(used.end(), its.begin(), its.end());
    }
    std::sort(used.begin(), used.end(),
              [](const Range &a, const Range &b) { return a.begin < b.begin; });
    return ranges_to_copy(used, joined(pieces));
}

CUresult Pages::pause(Lock &lock, const PauseRequest &request, HostCopy &copy) {
    const auto leaves = [&](const Piece &piece) {
        return piece.role == Role::owner && piece.handle != 0 && !piece.spilled &&
               !overlaps(piece, request.exported);
    };
    const auto leaves_alone = [&](const Piece &piece) { // its former places have gone
        return leaves(piece) && piece.other == 0;
    };
    if (request.keeps) {
        const std::vector<Range> content = content_of(pieces_where(leaves));
        const Unlocked unlocked(lock);
        const CUresult result = copy.save(content);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    release_idle(lock, 0, true);
    access_.await(lock);
    FillPlan plan;
    for (const Piece &each : pieces_where([](const Piece &p) { return p.role != Role::owner; })) {
        plan.ended.push_back(each.address);
    }
    if (!plan.ended.empty()) {
        carry_out(lock, order_.common(), plan, nullptr);
        access_.await(lock);
    }
    const PageAccess::Use use(access_);
    const Moves::Move move(moves_);
    const std::vector<Piece> leaving = pieces_where(leaves_alone);
    std::vector<Piece> gone;
    gone.reserve(leaving.size());
    if (moves_.returns_are_deferred()) { // a section may have begun during the copy
        return CUDA_ERROR_NOT_PERMITTED;
    }
    Refused refused;
    {
        const Unlocked unlocked(lock);
        driver_.take_away(leaving, heap_, gone, refused);
    }
    for (const Piece &piece : gone) {
        heap_.segment_at(piece.address).pieces.set_handle(piece.address, 0);
        holdings_.pause(piece.bytes);
    }
    keep_refused(refused);
    return CUDA_SUCCESS;
}

// What was freed meanwhile needs no memory.
void Pages::drop_idle_paused() {
    std::vector<IdlePiece> idle = heap_.idle_pieces(nullptr, SIZE_MAX);
    idle.erase(std::remove_if(idle.begin(), idle.end(),
                              [](const IdlePiece &each) { return each.piece.handle != 0; }),
               idle.end());
    std::sort(idle.begin(), idle.end(), [](const IdlePiece &a, const IdlePiece &b) {
        return a.piece.address < b.piece.address;
    });
    heap_.reserve_records(2 * idle.size() + 2);
    for (Block *block : heap_.take_pieces(idle, heap_.anyone)) {
        block->segment->pieces.remove(block->segment->pieces.at(block->begin));
        holdings_.resume(block->size);
        holdings_.remove(block->size);
        heap_.make_unmapped(*block);
    }
}

// Nothing changes unless all of it succeeds.
CUresult Pages::resume(Lock &lock, HostCopy &copy, bool keeps_copy) {
    drop_idle_paused();
    std::vector<Piece> returning =
        pieces_where([](const Piece &piece) { return piece.handle == 0; });
    const std::vector<Range> content = content_of(returning);
    std::vector<uint64_t> sizes;
    std::vector<Piece> made;
    sizes.reserve(returning.size());
    made.reserve(returning.size());
    for (const Piece &piece : returning) {
        sizes.push_back(piece.bytes);
    }
    access_.await(lock);
    const PageAccess::Use use(access_);
    const Moves::Move move(moves_);
    Refused refused;
    CUresult result = CUDA_SUCCESS;
    {
        const Unlocked unlocked(lock);
        result = driver_.create(sizes, made, refused);
        for (size_t i = 0; i < made.size(); i++) {
            returning[i].handle = made[i].handle;
        }
        result = result == CUDA_SUCCESS ? put_behind(returning, content, copy, refused) : result;
        if (result == CUDA_SUCCESS) {
            keeps_copy ? copy.forget() : copy.release();
        }
    }
    context_.note_error(result);
    if (result == CUDA_SUCCESS) {
        for (const Piece &piece : returning) {
            heap_.segment_at(piece.address).pieces.set_handle(piece.address, piece.handle);
        }
        holdings_.resume(holdings_.paused());
    }
    keep_refused(refused);
    return result;
}

// No lock is held.
CUresult Pages::put_behind(const std::vector<Piece> &pieces, const std::vector<Range> &content,
                           HostCopy &copy, Refused &refused) {
    size_t mapped = 0;
    CUresult result = copy.settle() ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    if (result == CUDA_SUCCESS) {
        result = driver_.put_behind(pieces, access_.granted(), heap_, mapped);
    }
    result = result == CUDA_SUCCESS ? copy.load(content) : result;
    if (result != CUDA_SUCCESS) {
        driver_.withdraw(pieces, mapped, !copy.settle(), heap_, refused);
    }
    return result;
}

} // namespace emm::pool
