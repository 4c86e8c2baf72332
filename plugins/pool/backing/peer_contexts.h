// Access of peer devices to all memory of cuMemAlloc, present and future. It is granted from the
// peer's side: by its primary context, which is retained meanwhile. The access belongs to the pair
// of contexts: the first manager of the context that asks for it enables it, and the last one
// disables it, unless the program had enabled it itself.
#pragma once

#include "cuda/served_context.h"

#include <emm/plugin.hpp>

#include <map>

namespace emm::pool {

class PeerContexts {
public:
    explicit PeerContexts(ServedContext &context) : context_(context) {}
    ~PeerContexts();
    PeerContexts(const PeerContexts &) = delete;
    PeerContexts &operator=(const PeerContexts &) = delete;

    emm_status set_access(int32_t device, bool on); // no lock is held

private:
    using Peers = std::map<int32_t, CUcontext>;
    CUresult enter(int32_t device);
    CUresult disable(Peers::iterator peer);
    void leave(Peers::iterator peer);
    CUresult switch_access(CUcontext peer, bool on);

    ServedContext &context_;
    const Driver &driver_ = context_.driver;
    Peers peers_; // devices that this manager has let in, with their primary contexts, retained
};

} // namespace emm::pool
