// Access of peer devices to all memory of cuMemAlloc, present and future. It is granted from the
// peer's side: by its primary context, which is retained meanwhile.
#pragma once

#include "cuda/served_context.h"

#include <emm/plugin.hpp>

#include <list>

namespace emm::pool {

class PeerContexts {
public:
    explicit PeerContexts(ServedContext &context) : context_(context) {}
    ~PeerContexts();
    PeerContexts(const PeerContexts &) = delete;
    PeerContexts &operator=(const PeerContexts &) = delete;

    emm_status set_access(int32_t device, bool on); // no lock is held

private:
    CUresult switch_access(CUcontext peer, bool on);
    void keep(std::list<int32_t> device, bool on, CUresult result);

    ServedContext &context_;
    const Driver &driver_ = context_.driver;
    std::list<int32_t> devices_; // peers whose primary context is retained
};

} // namespace emm::pool
