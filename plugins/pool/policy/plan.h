// Where memory for a request comes from if growth is by pages: pure functions, no state.
#pragma once

#include "heap/pieces.h"

#include <cstddef>
#include <vector>

namespace emm::pool {

// The steps for one request. All lengths are multiples of a page.
struct FillPlan {
    std::vector<IdlePiece> moved;    // mapped elsewhere: complete pieces, then pending ones
    std::vector<IdlePiece> released; // given back, because new pieces are cheaper than moving these
    std::vector<uint64_t> ended;     // further places whose mappings end
    std::vector<uint64_t> sizes;     // of new pieces
    uint64_t created = 0;            // bytes of new memory: their sum
    uint64_t mapped = 0;             // bytes that the request gets: those of `moved`, and `created`
    uint64_t growth_ns = 0;          // the driver's time for new memory alone

    uint64_t released_bytes() const;
    bool has_pending() const; // whether work may still use some of `moved` at their present places
    uint64_t cost() const;    // the driver's time beyond growth_ns, in nanoseconds
    bool only_moves() const { return !moved.empty() && sizes.empty() && released.empty(); }
    uint64_t least_ns() const; // for `moved` alone, if all of them lie side by side afterwards
};

struct FillRequest {
    uint64_t missing = 0; // bytes
    uint64_t fresh = 0;   // how many of `missing` may be new memory
    uint64_t room = 0;    // the most that can be mapped
    uint64_t piece = 0;   // the size of new pieces; the remainder is one more piece
    uint64_t growth = 0;  // bytes to take if all of it is new memory
    bool keeps = false;   // whether nothing may go back to the driver: pieces move or stay
    uint64_t priced = 0;  // if larger than `piece`, the size of pieces for the price of growth
};

// `idle` may be reordered. Throws std::bad_alloc.
FillPlan plan_fill(const FillRequest &request, std::vector<IdlePiece> &idle);

// The same with new memory alone.
FillPlan plan_growth(const FillRequest &request);

} // namespace emm::pool
