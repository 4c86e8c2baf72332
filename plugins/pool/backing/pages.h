// Growth by pieces of physical memory behind ranges of addresses. A block that fits nowhere is made
// where the fewest bytes are missing. Those bytes are new, or come from free blocks elsewhere:
// plan.h decides. Only complete memory is ever unmapped, because cuMemUnmap does not wait; memory
// that a graph may use is never complete. Incomplete memory that the request's stream may use gets
// another place.
//
//   pages.cpp         where memory is put
//   pages_return.cpp  memory that goes back
//   pages_pause.cpp   a pool that is paused
//   fill.h            one plan, while the driver works on it
//   page_driver.h     the driver calls
//   page_access.h     which devices may use it
#pragma once

#include "backing/backing.h"
#include "backing/host_copy.h"
#include "backing/page_access.h"
#include "backing/page_driver.h"
#include "order/copies.h"
#include "policy/pace.h"
#include "policy/plan.h"

namespace emm::pool {

class Pages final : public Backing {
public:
    Pages(const Options &options, StreamOrder &order, DeviceMemory &memory, ThreadCaches &caches,
          Moves &moves)
        : Backing(options, order, memory, caches, moves) {
        heap_.set_most_places(options.places);
        begin_spill();
    }

    Block *take(StreamPool &pool, uint64_t bytes) override;
    bool grows_first(uint64_t) const override { return false; }
    Block *grow(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes,
                CUresult &result) override;
    Block *reclaim(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes, bool again,
                   CUresult &result) override;
    const char *calls() const override { return "cuMemCreate or cuMemMap"; }

    CUresult take_initial(Lock &lock, uint64_t bytes) override;
    bool may_have_idle() const override { return true; }
    uint64_t release_idle(Lock &lock, uint64_t keep, bool complete_only) override;
    void give_back(List<Segment, &Segment::all> segments) override;

    bool can_pause(bool keeps) const override {
        return !keeps || Copies::are_served(context_.driver);
    }
    CUresult pause(Lock &lock, const PauseRequest &request, HostCopy &copy) override;
    CUresult resume(Lock &lock, HostCopy &copy) override;

    ExportedRange range_of(const Segment &segment, uint64_t begin, uint64_t size) const override;
    emm_status serve(const ExportedRange &range, emm_ipc_handle &ret_handle) override;
    emm_status withdraw(const emm_ipc_handle &handle) override;
    bool serves_access(uint32_t) const override { return true; }
    emm_status set_access(int32_t peer, uint32_t flags) override;

private:
    class OrderedPools;
    void begin_spill();
    // Whether a piece may be mapped at more than one address.
    bool has_places() const { return options_.places > 1 && !access_.any_peer(); }
    Block *take_of(StreamPool &pool, uint64_t bytes, Zone zone);
    Block *fill_up(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes, Zone zone,
                   OrderedPools &ordered, CUresult &result);
    Block *spill(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes,
                 CUresult &result);
    void wait_for_others(Lock &lock, const StreamPool &pool, const Caller &caller, uint64_t bytes,
                         bool may_grow, OrderedPools &ordered);
    bool has_enough_idle(const Heap::Room &room, bool may_grow,
                         const std::vector<Heap::Ordered> &ordered) const;
    FillPlan plan_for(const Heap::Room &room, bool may_grow,
                      const std::vector<Heap::Ordered> &ordered) const;
    uint64_t allowance_ns() const;
    CUresult fill(Lock &lock, StreamPool &pool, const Heap::Room &room, bool may_grow,
                  const OrderedPools &ordered);
    bool go_back(StreamPool &pool, const FillPlan &plan, const Heap::Room &room);
    CUresult execute(Lock &lock, StreamPool &pool, const FillPlan &plan, const Heap::Room *room);
    CUresult add_addresses(Lock &lock, uint64_t bytes, Zone zone);
    std::unique_ptr<Segment> reserve(uint64_t bytes, Zone zone, bool last, CUresult &result);
    bool has_finished();
    void give_back(const std::vector<Piece> &pieces);
    void keep_refused(const Refused &refused);
    void return_refused(Lock &lock);

    // --- pages_pause.cpp
    template <class Choose> std::vector<Piece> pieces_where(Choose choose) const;
    std::vector<Range> all_used() const;
    std::vector<Range> content_of(const std::vector<Piece> &pieces) const;
    std::vector<Range> content_to_save(const std::vector<Piece> &leaving) const;
    void end_places(Lock &lock);
    bool defers_returns();
    void drop_idle_paused();
    void join_paused();
    CUresult put_behind(std::vector<Piece> &pieces, std::vector<Range> &content, HostCopy &copy,
                        size_t &mapped, Refused &refused);

    const PageDriver driver_{context_, options_.rdma, options_.spill > 0};
    PageAccess access_{context_, heap_};
    std::vector<Piece> refused_pieces_; // like refused_, and mapped nowhere
    DriverPace pace_;
    uint64_t moved_ns_ = 0; // the driver's time that moving has cost
};

} // namespace emm::pool
