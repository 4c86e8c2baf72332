// What the end of work means for memory, and what the order of streams needs to have done with it:
// the manager's part. The pool's lock is held.
#pragma once

#include "domain.h"

namespace emm::pool {

class FreedMemory {
public:
    // Free from now on, for whom the domain is.
    virtual void give(Place place, Domain &domain) = 0;
    // Freed, and of no use to any request until give_held().
    virtual void hold(Place place) = 0;
    virtual void give_held(Place place, Domain &domain) = 0;
    // What `domain` freed with tags up to `tag` is complete.
    virtual void complete(Domain &domain, uint64_t tag) = 0;
    // What threads keep of the domain comes home, for good.
    virtual void close_magazines(Domain &domain) = 0;
    // Slabs without an allocation go back to the heap; others serve every stream.
    virtual void drop_spares(Domain &domain) = 0;
    virtual void disband(Domain &domain) = 0;

protected:
    ~FreedMemory() = default;
};

} // namespace emm::pool
