// A plan that is being carried out: what it takes out of the heap for as long as the driver works
// on it, and what the driver has done of it.
#pragma once

#include "backing/holdings.h"
#include "backing/page_driver.h"
#include "policy/plan.h"

#include <optional>

namespace emm::pool {

class Fill {
public:
    // The lock is held. All that needs host memory comes before anything is taken; throws
    // std::bad_alloc. `room` is NULL where a plan only gives memory back. `pool` gets what is
    // pending. `keeps_places`: what moves stays mapped where it was, too.
    Fill(Heap &heap, const FillPlan &plan, const Heap::Room *room, FreePool &pool,
         const std::vector<CUmemAccessDesc> &access, bool keeps_places);

    CUresult ask(const PageDriver &driver); // no lock is held
    void settle(Holdings &holdings);        // what the driver has done becomes the heap's; the lock
                                            // is held from here to its end
    const Refused &refused() const { return refused_; }

private:
    // What the driver takes away, each a block of its own. Those that have gone come first.
    struct Parting {
        std::vector<Piece> pieces;
        size_t done = 0;
    };
    std::vector<uint64_t> places_to_end(const FillPlan &plan, const Heap::Room *room) const;
    void keep_places();
    void take_target(const Heap::Room &room);
    void end_places(const std::vector<uint64_t> &places);
    CUresult unmap_places(const PageDriver &driver, CUresult &refusal);
    CUresult release_leaving(const PageDriver &driver);
    void hand_back(Holdings &holdings, const Parting &parting);
    void settle_target(Holdings &holdings);

    Heap &heap_;
    FreePool &pool_;
    const bool pending_, keeps_places_;
    Parting moving_, leaving_;
    std::vector<Block *> kept_;      // whose pieces are mapped once more
    std::vector<Piece> kept_pieces_; // the same
    size_t complete_ = 0;            // of those; the rest are pending
    std::vector<Piece> ending_;      // places: those that have ended, then those that stay
    std::vector<Block *> rests_;     // unmapped, once they have ended
    size_t ended_ = 0;               // of the places
    std::vector<uint64_t> sizes_;    // of new pieces
    std::vector<Piece> pieces_; // for the target, in this order: moving, complete, new, pending
    Refused refused_;           // of all that went back
    const std::vector<CUmemAccessDesc> access_;
    const uint64_t wanted_; // bytes behind the target
    Block *target_ = nullptr;
    uint64_t taken_begin_ = 0, taken_end_ = 0; // what the target was cut from
    Block *spare_ = nullptr; // a record, in case that only a part of the target gets memory
    bool spills_ = false;    // the target's memory is the host's
    size_t mapped_ = 0;      // pieces behind the target
    std::optional<Heap::Promise> promise_; // of places that may become idle
};

} // namespace emm::pool
