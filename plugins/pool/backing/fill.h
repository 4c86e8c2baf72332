// A plan that is being carried out: the memory taken out of the heap while the driver works on it,
// and the driver's progress.
#pragma once

#include "backing/holdings.h"
#include "backing/page_driver.h"
#include "policy/plan.h"

#include <optional>

namespace emm::pool {

class Fill {
public:
    // The lock is held. Everything that needs host memory happens before anything is taken; throws
    // std::bad_alloc. If a plan only gives memory back, `room` is NULL. `pool` gets the pending
    // memory. `keeps_places`: moved pieces also stay mapped at their old places.
    Fill(Heap &heap, const FillPlan &plan, const Heap::Room *room, FreePool &pool,
         const std::vector<CUmemAccessDesc> &access, bool keeps_places);

    CUresult ask(const PageDriver &driver); // no lock is held
    // Passes the driver's results on to the heap; the lock is held from here to the object's end.
    void apply_results(Holdings &holdings);
    const Refused &refused() const { return refused_; }

private:
    // Pieces that the driver unmaps, each as a block of its own. Those that are unmapped already
    // come first.
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
    void apply_target_result(Holdings &holdings);

    Heap &heap_;
    FreePool &pool_;
    const bool pending_, keeps_places_;
    Parting moving_, leaving_;
    std::vector<Block *> kept_;      // blocks whose pieces get one more mapping
    std::vector<Piece> kept_pieces_; // their pieces
    size_t complete_ = 0;            // number of complete ones; the others are pending
    std::vector<Piece> ending_;      // places to end: those that have ended, then those that stay
    std::vector<Block *> rests_;     // to be unmapped, once the places have ended
    size_t ended_ = 0;               // number of places that have ended
    std::vector<uint64_t> sizes_;    // of new pieces
    std::vector<Piece> pieces_; // for the target, in this order: moving, complete, new, pending
    Refused refused_;           // of all pieces that went back
    const std::vector<CUmemAccessDesc> access_;
    const uint64_t wanted_; // bytes behind the target
    Block *target_ = nullptr;
    uint64_t taken_begin_ = 0, taken_end_ = 0; // the block that the target was cut from
    Block *spare_ = nullptr; // a spare record, in case only a part of the target gets memory
    bool spills_ = false;    // the target is host memory
    size_t mapped_ = 0;      // number of pieces behind the target
    std::optional<Heap::Promise> promise_; // for places that may become idle
};

} // namespace emm::pool
