#include "plan.h"

#include "growth.h"

#include <algorithm>

namespace emm::pool {
namespace {

uint64_t sum_of(const std::vector<IdlePiece> &pieces) {
    uint64_t bytes = 0;
    for (const IdlePiece &each : pieces) {
        bytes += each.piece.bytes;
    }
    return bytes;
}

// Whether a piece that is too large by this much is moved as a whole.
bool may_exceed(uint64_t wanted, uint64_t bytes) {
    return bytes - wanted <= std::max(wanted / 8, page_bytes);
}

// The largest piece first. Among equal pieces, the piece in the smallest block: small blocks serve
// fewest requests.
bool is_before(const IdlePiece &a, const IdlePiece &b) {
    if (a.piece.bytes != b.piece.bytes) {
        return a.piece.bytes > b.piece.bytes;
    }
    return a.around != b.around ? a.around < b.around : a.piece.address < b.piece.address;
}

bool lies_before(const IdlePiece &a, const IdlePiece &b) {
    return a.pending != b.pending ? b.pending : a.piece.address < b.piece.address;
}

uint64_t pieces_in(uint64_t bytes, uint64_t piece) {
    return (bytes + piece - 1) / piece;
}

// If a few new pieces cost less than moving many small ones, exchanges them.
void prefer_new_pieces(const FillRequest &request, FillPlan &plan) {
    const auto cheap =
        std::stable_partition(plan.moved.begin(), plan.moved.end(), [](const IdlePiece &each) {
            return each.pending || each.piece.bytes > cheap_to_release;
        });
    const std::vector<IdlePiece> small(cheap, plan.moved.end());
    const uint64_t made = pieces_in(sum_of(small), request.piece) * (create_ns + map_ns);
    if (small.size() * (map_ns - release_ns) > made) {
        plan.released.insert(plan.released.end(), small.begin(), small.end());
        plan.moved.erase(cheap, plan.moved.end());
    }
}

// Takes idle pieces, largest first, as long as they are not too much; then the smallest larger one.
// That one is moved if it is only a little too large, exchanged for the bytes wanted otherwise, or
// left where it is if nothing may go back. All idle pieces together may not be enough.
void choose(const FillRequest &request, const std::vector<IdlePiece> &idle, FillPlan &plan) {
    uint64_t wanted = request.missing - std::min(request.missing, request.fresh);
    const IdlePiece *larger = nullptr; // the smallest piece that is too large
    for (size_t i = 0; i < idle.size() && wanted > 0; i++) {
        if (idle[i].piece.bytes <= wanted) {
            plan.moved.push_back(idle[i]);
            wanted -= idle[i].piece.bytes;
        } else {
            larger = &idle[i];
        }
    }
    if (wanted > 0 && larger) {
        const uint64_t bytes = request.missing - wanted + larger->piece.bytes;
        if (bytes <= request.room && may_exceed(wanted, larger->piece.bytes)) {
            plan.moved.push_back(*larger);
        } else if (!request.keeps && !larger->pending) {
            plan.released.push_back(*larger);
        }
    }
}

void add_new_pieces(const FillRequest &request, FillPlan &plan) {
    const uint64_t moved = sum_of(plan.moved);
    plan.created = request.missing > moved ? request.missing - moved : 0;
    if (plan.created == request.missing && plan.released.empty()) { // growth only
        plan.created = std::max(plan.created, std::min(request.growth, request.room));
    }
    plan.mapped = moved + plan.created;
    const uint64_t priced = std::max(request.piece, request.priced);
    plan.growth_ns = pieces_in(request.missing, priced) * (create_ns + map_ns);
    plan.sizes.assign(plan.created / request.piece, request.piece);
    if (plan.created % request.piece != 0) {
        plan.sizes.push_back(plan.created % request.piece);
    }
}

} // namespace

uint64_t FillPlan::released_bytes() const {
    return sum_of(released);
}

bool FillPlan::has_pending() const {
    return std::any_of(moved.begin(), moved.end(), [](const auto &each) { return each.pending; });
}

uint64_t FillPlan::least_ns() const {
    return moved.size() * one_map_ns + map_ns;
}

uint64_t FillPlan::cost() const {
    if (moved.empty() && released.empty()) {
        return 0;
    }
    const uint64_t all = moved.size() * (unmap_ns + map_ns) +
                         released.size() * (unmap_ns + release_ns) +
                         sizes.size() * (create_ns + map_ns);
    return all - std::min(all, growth_ns);
}

FillPlan plan_fill(const FillRequest &request, std::vector<IdlePiece> &idle) {
    FillPlan plan;
    std::sort(idle.begin(), idle.end(), is_before);
    choose(request, idle, plan);
    if (!request.keeps) {
        prefer_new_pieces(request, plan);
    }
    add_new_pieces(request, plan);
    std::sort(plan.moved.begin(), plan.moved.end(), lies_before);
    return plan;
}

FillPlan plan_growth(const FillRequest &request) {
    FillPlan plan;
    add_new_pieces(request, plan);
    return plan;
}

} // namespace emm::pool
