// The managers of this process, by numbers that are never reused. A manager does not end while it
// is visited.
#pragma once

#include "cuda/driver.h"

#include <cstdint>

namespace emm::pool {

class StreamOrder;

namespace registry {

// Stores the number in ret_number before the first visit. Throws std::bad_alloc.
void enter(StreamOrder &order, CUcontext context, uint64_t context_id, uint64_t &ret_number);
void leave(uint64_t number);    // waits for visits to end
uint64_t next(uint64_t number); // the next higher number; 0: no manager has one
// Whether an older manager serves the same context.
bool has_older_sibling(uint64_t number);

// Managers with portable memory; the others need not wait for their work when they end.
void count_portable(int more);
bool has_portable();

// Contexts whose managers have ended, with work that could not be waited for. Until these contexts
// have died, or a later wait succeeds, memory freed with no stream stays where it is.
void leave_unfinished(CUcontext context, uint64_t context_id);
bool is_unfinished(CUcontext context, uint64_t context_id);
bool all_finished(const Driver &driver, bool waits);

// While such an object lives, the manager does not end. It converts to false if the manager has
// gone already.
class Visit {
public:
    explicit Visit(uint64_t number);
    ~Visit();
    Visit(const Visit &) = delete;
    Visit &operator=(const Visit &) = delete;
    explicit operator bool() const { return order_; }
    StreamOrder *operator->() const { return order_; }

private:
    const uint64_t number_;
    StreamOrder *const order_;
};

} // namespace registry

} // namespace emm::pool
