// Growth by segments of cuMemAlloc. A segment can only go back whole, and only when idle. So the
// pool holds about as much as was ever needed, and exchanges segments that have become too small
// for others.
//
//   segments.cpp        cutting, when to grow, which segment goes back: with policy/segments.h
//   segment_driver.cpp  the driver calls
#pragma once

#include "backing/backing.h"
#include "backing/peer_contexts.h"
#include "policy/segments.h"

namespace emm::pool {

class Segments final : public Backing {
public:
    using Backing::Backing;

    Block *take(StreamPool &pool, uint64_t bytes) override;
    bool grows_first(uint64_t bytes) const override;
    Block *grow(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes,
                CUresult &result) override;
    Block *reclaim(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes, bool again,
                   CUresult &result) override;
    const char *calls() const override { return "cuMemAlloc"; }

    CUresult take_initial(Lock &lock, uint64_t bytes) override;
    bool may_have_idle() const override { return heap_.whole_bytes() > 0; }
    uint64_t release_idle(Lock &lock, uint64_t keep, bool complete_only) override;
    void give_back(List<Segment, &Segment::all> segments) override;

    ExportedRange range_of(const Segment &segment, uint64_t begin, uint64_t size) const override;
    emm_status serve(const ExportedRange &range, emm_ipc_handle &ret_handle) override;
    emm_status withdraw(const emm_ipc_handle &) override { return EMM_OK; }
    bool serves_access(uint32_t flags) const override { return flags != EMM_ACCESS_READ; }
    emm_status set_access(int32_t peer, uint32_t flags) override;

private:
    Block *await_segments(Lock &lock, StreamPool &pool, uint64_t bytes);
    bool has_unfinished() const;
    SegmentUse use(uint64_t bytes) const;
    uint64_t growth_for(uint64_t bytes) const;
    uint64_t cut_limit_for(uint64_t bytes) const;
    uint64_t missing_for(uint64_t bytes) const; // bytes that idle segments must make room for
    Block *take_new(StreamPool &pool, uint64_t bytes, Zone zone);
    void exchange_idle(Lock &lock, uint64_t bytes);
    uint64_t exchangeable() const;
    Segment *idle_for(uint64_t missing, Zone zone) const;

    CUresult add(Lock &lock, uint64_t bytes, Zone zone);
    std::unique_ptr<Segment> allocate(uint64_t bytes, CUresult &result);
    void release(Lock &lock, Segment &segment);
    void give_back(Segment &segment);
    bool return_refused(Lock &lock); // whether there were any

    const Driver &driver_ = context_.driver;
    PeerContexts peers_{context_};
    bool ragged_ = false; // the driver has given memory that is not aligned to 2 MiB
};

} // namespace emm::pool
