// A plan that is being carried out: what it takes out of the heap for as long as the driver works
// on it, and what the driver has done of it.
#pragma once

#include "backing/holdings.h"
#include "backing/page_driver.h"
#include "policy/plan.h"

namespace emm::pool {

class Fill {
public:
    // The lock is held. All that needs host memory comes before anything is taken; throws
    // std::bad_alloc. `room` is NULL where a plan only gives memory back. `pool` gets what is
    // pending.
    Fill(Heap &heap, const FillPlan &plan, const Heap::Room *room, FreePool &pool,
         const std::vector<CUmemAccessDesc> &access);

    CUresult ask(const PageDriver &driver); // no lock is held
    void settle(Holdings &holdings);        // what the driver has done becomes the heap's
    const Refused &refused() const { return refused_; }

private:
    void hand_back(Holdings &holdings, const std::vector<Block *> &blocks, size_t taken_away);
    void settle_places(Holdings &holdings);

    Heap &heap_;
    FreePool &pool_;
    std::vector<Block *> moving_, leaving_; // a piece each
    std::vector<Block *> doubled_;          // the same, pending: mapped a second time
    std::vector<Block *> ending_;           // former places
    std::vector<uint64_t> sizes_;           // of new pieces
    std::vector<Piece> gone_, ended_;       // released; of former places
    std::vector<Piece> moved_pieces_, doubled_pieces_;
    std::vector<Piece> pieces_; // for the target: what moves, new ones, those mapped a second time
    Refused refused_;           // of all that went back
    const std::vector<CUmemAccessDesc> access_;
    Block *target_ = nullptr;
    Block *spare_ = nullptr;      // a record, in case that only a part of the target gets memory
    bool spills_ = false;         // the target's memory is the host's
    size_t moved_ = 0, left_ = 0; // how many of them the driver has taken away
    uint64_t mapped_ = 0;         // bytes behind the target
};

} // namespace emm::pool
