// A pool that is paused: its pieces keep their addresses and have no handle. Host memory stays.
#include "pages.h"

#include "policy/growth.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace emm::pool {
namespace {

bool overlaps(const Piece &piece, const std::vector<Range> &ranges) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const Range &range) {
        return piece.address < range.end && range.begin < piece.end();
    });
}

// Everything except free complete memory: memory that a graph or a stream may use is kept.
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

// Joins neighbours, by address, because the driver's cost is by the call.
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

uint64_t bytes_of(std::span<const Piece> pieces) {
    return std::accumulate(pieces.begin(), pieces.end(), uint64_t(0),
                           [](uint64_t bytes, const Piece &piece) { return bytes + piece.bytes; });
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

// Ordered by the address.
std::vector<Range> Pages::all_used() const {
    std::vector<Range> used;
    for (Segment *s = heap_.first_segment(); s; s = heap_.next_segment(*s)) {
        const std::vector<Range> its = used_ranges(*s);
        used.insert(used.end(), its.begin(), its.end());
    }
    std::sort(used.begin(), used.end(),
              [](const Range &a, const Range &b) { return a.begin < b.begin; });
    return used;
}

std::vector<Range> Pages::content_of(const std::vector<Piece> &pieces) const {
    return ranges_to_copy(all_used(), joined(pieces));
}

// With the rest of a block whose other pieces stay: meanwhile the block is read from the copy.
std::vector<Range> Pages::content_to_save(const std::vector<Piece> &leaving) const {
    const std::vector<Range> used = all_used();
    return ranges_to_copy(used, with_whole_blocks(joined(leaving), used));
}

// Ends further mappings of pieces.
void Pages::end_places(Lock &lock) {
    FillPlan plan;
    for (const Piece &each : pieces_where([](const Piece &p) { return p.role != Role::owner; })) {
        plan.ended.push_back(each.address);
    }
    if (!plan.ended.empty()) {
        execute(lock, order_.common(), plan, nullptr);
        access_.await(lock);
    }
}

// A piece leaves once its content is saved. If later copies fail, pieces that have gone stay gone.
CUresult Pages::pause(Lock &lock, const PauseRequest &request, HostCopy &copy) {
    release_idle(lock, 0, true);
    access_.await(lock);
    end_places(lock);
    const PageAccess::Use use(access_);
    const Moves::Move move(moves_);
    const std::vector<Piece> leaving = pieces_where([&](const Piece &piece) {
        return piece.role == Role::owner && piece.handle != 0 && piece.other == 0 &&
               !piece.spilled && !overlaps(piece, request.exported);
    });
    const std::vector<Range> content =
        request.keeps ? content_to_save(leaving) : std::vector<Range>();
    std::vector<Piece> gone;
    gone.reserve(leaving.size());
    size_t next = 0; // index of the next leaving piece
    Refused refused;
    CUresult result = CUDA_SUCCESS;
    const auto leave = [&](uint64_t saved_end) {
        const size_t first = next;
        if (first == 0 && defers_returns()) { // a section may have begun meanwhile
            return false;
        }
        while (next < leaving.size() && leaving[next].end() <= saved_end) {
            next++;
        }
        driver_.take_away(std::span(leaving).subspan(first, next - first), heap_, gone, refused);
        return true;
    };
    {
        const Unlocked unlocked(lock);
        result = copy.save(content, leave);
    }
    context_.note_error(result);
    for (const Piece &piece : gone) {
        heap_.segment_at(piece.address).pieces.set_handle(piece.address, 0);
        holdings_.pause(piece.bytes);
    }
    keep_refused(refused);
    return gone.empty() ? result : CUDA_SUCCESS;
}

// No lock is held.
bool Pages::defers_returns() {
    const Lock lock(context_.mutex);
    return moves_.returns_are_deferred();
}

// Memory that was freed during the pause needs no memory behind it.
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

// The driver's cost is by the piece.
void Pages::join_paused() {
    const uint64_t most = joined_bytes(holdings_.limit(), options_.slack);
    for (Segment *s = heap_.first_segment(); s; s = heap_.next_segment(*s)) {
        for (const Block *block = s->first; block; block = block->right) {
            if (block->state == State::live) {
                s->pieces.join_paused(block->begin, block->end(), most);
            }
        }
    }
}

// Changes nothing unless everything succeeds, except that fewer and larger pieces stay paused.
CUresult Pages::resume(Lock &lock, HostCopy &copy) {
    drop_idle_paused();
    join_paused();
    std::vector<Piece> returning =
        pieces_where([](const Piece &piece) { return piece.handle == 0; });
    std::vector<Range> content = content_of(returning);
    access_.await(lock);
    const PageAccess::Use use(access_);
    const Moves::Move move(moves_);
    Refused refused;
    CUresult result = CUDA_SUCCESS;
    {
        const Unlocked unlocked(lock);
        size_t mapped = 0;
        result = copy.wait_until_unused() ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
        result =
            result == CUDA_SUCCESS ? put_behind(returning, content, copy, mapped, refused) : result;
        if (result == CUDA_SUCCESS) {
            copy.forget();
        } else {
            driver_.withdraw(returning, mapped, !copy.wait_until_unused(), heap_, refused);
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

// Works part by part: while the content of one part is copied, the driver maps the next. All memory
// is made during the first copy. If there is too little, the resume fails before it takes any:
// other processes may need the rest. No lock is held.
CUresult Pages::put_behind(std::vector<Piece> &pieces, std::vector<Range> &content, HostCopy &copy,
                           size_t &mapped, Refused &refused) {
    if (const CUresult result = driver_.try_room(bytes_of(pieces), refused);
        result != CUDA_SUCCESS) {
        return result;
    }
    const uint64_t part = content.empty() ? UINT64_MAX : part_bytes(bytes_of(pieces));
    auto range = content.begin();
    size_t made = 0;
    for (size_t first = 0, end = 0; first < pieces.size(); first = end) {
        for (uint64_t bytes = 0; end < pieces.size() && bytes < part; end++) {
            bytes += pieces[end].bytes;
        }
        const size_t wanted = first == 0 ? end : pieces.size();
        CUresult result = driver_.make_again(std::span(pieces).subspan(made, wanted - made));
        made = wanted;
        if (result == CUDA_SUCCESS) {
            result = driver_.map_again(std::span(pieces).subspan(first, end - first),
                                       access_.granted(), heap_, mapped);
        }
        if (result != CUDA_SUCCESS) {
            return result;
        }
        const uint64_t part_end = pieces[end - 1].end();
        for (; range != content.end() && range->begin < part_end; ++range) {
            copy.load({range->begin, std::min(range->end, part_end)});
            if (range->end > part_end) {
                range->begin = part_end;
                break;
            }
        }
    }
    return copy.wait();
}

} // namespace emm::pool
