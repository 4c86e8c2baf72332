// Portable pinned memory may be in use by every context: what was freed with no stream waits for a
// mark on the work of each context that has a pool.
#pragma once

#include "stream_order.h"

namespace emm::pool {

class CrossContext {
public:
    CrossContext(ServedContext &context, StreamOrder &order)
        : context_(context), order_(order), events_(context) {}

    // From now on the manager has portable memory.
    void begin();
    // Called at the manager's end; afterwards no manager can mark its work.
    void end();
    // After end(): removes the events that other managers have in its context.
    void take_back() const;

    // --- with the pool's lock, which is let go of ---
    void do_maintenance(Lock &lock);
    void query(Lock &lock);
    bool mark(Lock &lock); // all contexts or none: a later call tries again
    void mark_what_is_left(Lock &lock, bool may_wait);
    bool wait(Lock &lock);

    // Gives away everything known of marks, to be dropped without the lock.
    std::list<Marks> forget();
    void drop(std::list<Marks> &all) const;

private:
    bool mark_everywhere(std::vector<WorkMark> &marks) const;
    bool is_own(const WorkMark &mark) const;
    bool is_over(const WorkMark &mark) const;
    void drop(WorkMark &mark) const;

    ServedContext &context_;
    StreamOrder &order_;
    const Events events_;
    bool has_portable_ = false;
};

} // namespace emm::pool
