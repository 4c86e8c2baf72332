// What the end of work means for memory, and what the order of streams needs to have done with it:
// the manager's part. The pool's lock is held.
#pragma once

#include "stream_pool.h"

namespace emm::pool {

class FreedMemory {
public:
    // Free from now on, for whom the free pool is.
    virtual void give(Place place, StreamPool &pool) = 0;
    // Freed, and of no use to any request until give_held().
    virtual void hold(Place place) = 0;
    virtual void give_held(Place place, StreamPool &pool) = 0;
    // What `pool` freed with tags up to `tag` is complete.
    virtual void complete(StreamPool &pool, uint64_t tag) = 0;
    // What threads keep of the free pool comes home, for good.
    virtual void close_magazines(StreamPool &pool) = 0;
    // Slabs without an allocation go back to the heap; others serve every stream.
    virtual void drop_spares(StreamPool &pool) = 0;
    virtual void disband(StreamPool &pool) = 0;

protected:
    ~FreedMemory() = default;
};

} // namespace emm::pool
